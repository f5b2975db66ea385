"""Who buys and who sells: names and places of customers, and the staff of the shop."""

from typing import NamedTuple


class Country(NamedTuple):
    """A country with names and places that sound like it."""

    name: str
    region: str
    weight: int
    dial: int
    days: int
    shipping_cents: int
    street: str
    first_names: tuple[str, ...]
    last_names: tuple[str, ...]
    streets: tuple[str, ...]
    cities: tuple[str, ...]
    companies: tuple[str, ...]


class Colleague(NamedTuple):
    """One of the staff, as the table employees keeps them."""

    name: str
    job_title: str
    manager_id: int | None
    hired_on: str
    left_on: str | None
    salary: int
    full_time: bool
    sells: bool


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(", "))


# One entry a line or two: a table reads better as a table.
# fmt: off
STAFF = (
    Colleague("Marit Haugen", "Founder and managing director", None, "2009-03-02", None,
              96000, True, False),
    Colleague("Ines Carvalho", "Head of sales", 1, "2012-09-17", None, 74000, True, False),
    Colleague("Tobias Wenger", "Head of purchasing", 1, "2011-05-02", None, 71500, True, False),
    Colleague("Agnieszka Nowak", "Head of warehouse", 1, "2014-01-13", None, 62000, True, False),
    Colleague("Luca Ferrari", "Key account manager", 2, "2016-04-04", None, 58500, True, True),
    Colleague("Sanne de Vries", "Sales adviser", 2, "2018-02-19", None, 44200, True, True),
    Colleague("Jonas Lindgren", "Sales adviser", 2, "2019-10-07", None, 43600, True, True),
    Colleague("Camille Moreau", "Sales adviser", 2, "2017-06-26", "2024-09-30", 45100, True, True),
    Colleague("Priya Raman", "Customer service lead", 2, "2015-11-09", None, 52400, True, True),
    Colleague("Oskar Brandt", "Customer service", 9, "2020-03-16", None, 38900, True, True),
    Colleague("Hannah Doyle", "Customer service", 9, "2023-05-02", None, 27400, False, True),
    Colleague("Mateusz Zieliński", "Warehouse clerk", 4, "2019-08-12", None, 35800, True, False),
    Colleague("Elif Yıldız", "Warehouse clerk", 4, "2021-11-22", None, 35200, True, False),
    Colleague("Noah Keller", "Buyer", 3, "2018-07-30", None, 49700, True, False),
    Colleague("Freya Sinclair", "Photographer and writer", 3, "2020-09-14", None,
              31500, False, False),
    Colleague("Rui Tavares", "Web developer", 1, "2022-01-10", None, 61000, True, False),
)

COUNTRIES = (
    Country(
        "Germany", "central", 20, 49, 3, 590, "{street} {number}",
        _words("Anna, Lukas, Leonie, Felix, Johanna, Maximilian, Katharina, Paul, Greta, Moritz,"
               " Frieda, Emil, Charlotte, Jakob"),
        _words("Becker, Hoffmann, Schäfer, Krüger, Vogel, Lindner, Baumgartner, Seidel, Jäger,"
               " Winkler, Brandl, Reuter, Voß, Neumann"),
        _words("Lindenstraße, Schillerstraße, Am Mühlbach, Gartenweg, Kirchgasse, Uferstraße"),
        _words("80331/München, 20095/Hamburg, 04109/Leipzig, 79098/Freiburg im Breisgau,"
               " 87435/Kempten, 10115/Berlin, 01067/Dresden"),
        _words("Bergschule Oberallgäu, Kletterzentrum Elbsand, Wanderverein Schwarzwald"),
    ),
    Country(
        "Austria", "central", 10, 43, 2, 590, "{street} {number}",
        _words("Magdalena, Florian, Theresa, Stefan, Valentina, Matthias, Elisabeth, Andreas,"
               " Marlene, Simon, Sophie, Dominik"),
        _words("Gruber, Steiner, Moser, Pichler, Eder, Haslinger, Egger, Brunner, Auer, Reiter,"
               " Kofler, Wallner"),
        _words("Maria-Theresien-Straße, Höttinger Gasse, Dorfplatz, Sonnenweg, Brennerstraße"),
        _words("6020/Innsbruck, 5020/Salzburg, 8010/Graz, 1070/Wien, 9020/Klagenfurt"),
        _words("Alpinschule Stubai, Hüttenwirte Dachstein"),
    ),
    Country(
        "Switzerland", "central", 9, 41, 3, 790, "{street} {number}",
        _words("Nina, Reto, Seraina, Beat, Ladina, Urs, Céline, Gian, Mirjam, Flurin, Corinne,"
               " Nicolas"),
        _words("Müller, Caduff, Zürcher, Favre, Bieri, Ammann, Rochat, Gerber, Camenisch, Wyss,"
               " Hürlimann, Berset"),
        _words("Bahnhofstrasse, Rue du Lac, Seefeldstrasse, Via Nova, Bergliweg"),
        _words("8001/Zürich, 3011/Bern, 7000/Chur, 1003/Lausanne, 3920/Zermatt"),
        _words("Bergführerverein Engadin, Club Alpin Lausanne"),
    ),
    Country(
        "Norway", "north", 9, 47, 5, 990, "{street} {number}",
        _words("Ingrid, Sindre, Astrid, Håkon, Solveig, Eirik, Kari, Magnus, Silje, Torstein,"
               " Ragnhild, Øyvind"),
        _words("Solberg, Bakke, Nygård, Haugland, Strand, Fossum, Lund, Myklebust, Berge,"
               " Tangen, Sørensen, Aasen"),
        _words("Storgata, Fjordveien, Kirkegata, Skogveien, Havnegata"),
        _words("0150/Oslo, 5003/Bergen, 7010/Trondheim, 9008/Tromsø, 8300/Svolvær"),
        _words("Lofoten Fjellguide AS, Turlag Hardanger"),
    ),
    Country(
        "Sweden", "north", 7, 46, 4, 990, "{street} {number}",
        _words("Elsa, Björn, Åsa, Gustav, Maja, Nils, Linnea, Anders, Signe, Oskar, Freja, Viktor"),
        _words("Åkesson, Lindqvist, Berglund, Nyström, Sandberg, Ekström, Holm, Wallin, Sjöberg,"
               " Hedlund, Norberg, Engström"),
        _words("Drottninggatan, Skolgatan, Strandvägen, Björkvägen, Kyrkogatan"),
        _words("111 51/Stockholm, 411 05/Göteborg, 831 31/Östersund, 981 31/Kiruna, 903 26/Umeå"),
        _words("Jämtlands Fjällskola, Kebnekaise Guider AB"),
    ),
    Country(
        "France", "west", 9, 33, 4, 790, "{number} {street}",
        _words("Manon, Hugo, Élodie, Antoine, Clémence, Mathieu, Juliette, Baptiste, Margaux,"
               " Rémi, Noémie, Gaspard"),
        _words("Dubois, Lefèvre, Garnier, Chevalier, Perrin, Marchand, Blanchard, Roussel,"
               " Fournier, Girard, Bonnet, Vidal"),
        _words("rue des Tilleuls, avenue de la Gare, chemin du Moulin, quai Perrière,"
               " rue Saint-Laurent"),
        _words("74400/Chamonix, 38000/Grenoble, 69002/Lyon, 75011/Paris, 65000/Tarbes"),
        _words("Refuge du Lac Blanc, Les Pieds Légers"),
    ),
    Country(
        "Italy", "south", 8, 39, 4, 790, "{street} {number}",
        _words("Giulia, Matteo, Chiara, Davide, Elena, Lorenzo, Francesca, Nicolò, Martina,"
               " Andrea, Alessia, Stefano"),
        _words("Rossetti, Bianchi, Moretti, Conti, Gallo, De Luca, Marchetti, Ferraro, Riva,"
               " Fontana, Pellegrini, Serra"),
        _words("Via Roma, Via Garibaldi, Corso Italia, Via delle Alpi, Piazza Duomo"),
        _words("39100/Bolzano, 11100/Aosta, 10121/Torino, 20121/Milano, 32043/Cortina d'Ampezzo"),
        _words("Scuola di Montagna Brenta, Rifugio Tre Laghi"),
    ),
    Country(
        "Spain", "south", 6, 34, 5, 790, "{street} {number}",
        _words("Lucía, Javier, Carmen, Álvaro, Nerea, Iker, Marta, Pablo, Núria, Sergio, Irene,"
               " Gonzalo"),
        _words("Navarro, Ibáñez, Etxeberria, Serrano, Molina, Puig, Castaño, Romero, Vidal,"
               " Herrero, Soler, Fuentes"),
        _words("Calle Mayor, Carrer de Mallorca, Avenida de los Pirineos, Plaza Nueva,"
               " Calle del Río"),
        _words("22700/Jaca, 08010/Barcelona, 28013/Madrid, 18009/Granada, 48005/Bilbao"),
        _words("Guías del Pirineo, Club Montaña Sierra Nevada"),
    ),
    Country(
        "Netherlands", "west", 7, 31, 3, 690, "{street} {number}",
        _words("Femke, Daan, Lotte, Bram, Anouk, Thijs, Marieke, Sem, Roos, Jeroen, Fleur, Koen"),
        _words("Jansen, de Boer, Visser, van Dijk, Bakker, Mulder, Hendriks, van der Meer,"
               " Smit, Dekker, Kuipers, Brouwer"),
        _words("Prinsengracht, Dorpsstraat, Molenweg, Oude Delft, Nieuwstraat"),
        _words("1016 GV/Amsterdam, 3512 JE/Utrecht, 9712 HM/Groningen, 6211 LE/Maastricht"),
        _words("Scouting De Trekvogels, Kanovereniging Waterland"),
    ),
    Country(
        "United Kingdom", "west", 8, 44, 6, 1290, "{number} {street}",
        _words("Emily, Callum, Rhiannon, Oliver, Isla, Fraser, Megan, Harry, Eilidh, Gareth,"
               " Poppy, Alistair"),
        _words("Whitaker, MacLeod, Pritchard, Hargreaves, Campbell, Ashworth, Fletcher,"
               " Sutherland, Bevan, Thornton, Reid, Lockwood"),
        _words("Mill Lane, High Street, Church Row, Station Road, Harbour Terrace"),
        _words("LA22 9BU/Ambleside, PH33 6AN/Fort William, LL55 4HB/Llanberis,"
               " EH1 2NG/Edinburgh, BS1 4ST/Bristol"),
        _words("Borrowdale Outdoor Centre, Cairngorm Mountain School"),
    ),
    Country(
        "Poland", "central", 5, 48, 4, 690, "{street} {number}",
        _words("Zofia, Łukasz, Maja, Paweł, Hanna, Krzysztof, Julia, Wojciech, Alicja, Michał"),
        _words("Kowalczyk, Wójcik, Mazur, Górski, Dąbrowska, Szymański, Pawlak, Sikora, Bąk,"
               " Król"),
        _words("ulica Krupówki, ulica Długa, ulica Polna, aleja Róż"),
        _words("34-500/Zakopane, 31-014/Kraków, 00-025/Warszawa, 50-103/Wrocław"),
        _words("Schronisko Pięć Stawów, Klub Wysokogórski Tatry"),
    ),
    Country(
        "Ireland", "west", 3, 353, 6, 1290, "{number} {street}",
        _words("Niamh, Conor, Saoirse, Declan, Aoife, Ronan, Clodagh, Eoin"),
        _words("O'Brien, Gallagher, Kavanagh, Ní Dhomhnaill, Brennan, O'Shea, Fitzgerald, Nolan"),
        _words("Shore Road, Main Street, Quay Street"),
        _words("D02 XY45/Dublin, H91 A3EF/Galway, V93 R2TK/Killarney"),
        _words("Connemara Adventure Tours"),
    ),
    Country(
        "Canada", "overseas", 4, 1, 12, 2490, "{number} {street}",
        _words("Madison, Ethan, Chloé, Liam, Abigail, Étienne, Hailey, Owen, Maëlle, Lucas"),
        _words("Tremblay, MacDonald, Gagnon, Singh, Bouchard, Wilson, Pelletier, Chan, Fraser,"
               " Roy"),
        _words("Bear Street, Spruce Avenue, rue Sainte-Anne, Lakeshore Drive"),
        _words("T1L 1A1/Banff, V6B 1A1/Vancouver, G1R 4S9/Québec, K1P 5M7/Ottawa"),
        _words("Rocky Ridge Guides"),
    ),
    Country(
        "Japan", "overseas", 4, 81, 14, 2490, "{number}-{street}",
        _words("Haruka, Kenji, Yui, Daichi, Sakura, Ren, Aoi, Takumi, Mio, Sōta"),
        _words("Satō, Takahashi, Nakamura, Kobayashi, Yoshida, Yamaguchi, Matsumoto, Inoue,"
               " Kimura, Hayashi"),
        _words("12 Ōdōri, 3 Honmachi, 7 Sakuragaoka, 21 Chūō"),
        _words("060-0042/Sapporo, 390-0874/Matsumoto, 150-0031/Tōkyō, 604-8005/Kyōto"),
        _words("Hakuba Alpine Club"),
    ),
)
