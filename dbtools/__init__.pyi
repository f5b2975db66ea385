from dbtools.service.embedding import open_toolbox as open_toolbox

__version__: str
