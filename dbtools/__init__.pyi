from dbtools.service.serving import open_target

open_toolbox = open_target

__version__: str
