-- name: cells
select * from cell order by id

-- name: one_cell
-- returns: one
-- param id: integer
select * from cell where id = :id

-- name: joined
select c.id, c.whole, d.id as other, d.whole as other_whole from cell c left join cell d on d.id = c.id + 1 order by c.id
