"""Whether a worker lives, and whether it can answer calls: for whoever balances load, without a token."""

import time

import anyio
import orjson
from starlette.responses import Response

from dbtools import errors
from dbtools.service.serving import Served

PATIENCE = 2.0  #: seconds that the database has to lend a connection
FRESH = 1.0  #: seconds in which the same is answered: nobody has to show who they are to ask


class Health:
    """Looks at the database, and at the age of the snapshot."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._looking = anyio.Lock()
        self._looked_at = -FRESH
        self._is_ready = False
        self._seen = time.monotonic()
        served.toolbox.subscribe(self._note)

    def _note(self, *_: object) -> None:
        self._seen = time.monotonic()

    async def ready(self) -> Response:
        """Answer 200 where a connection is free, else 503, with the seconds since the tools were made.

        A configuration that cannot be used is told, and refuses nobody: older settings are in force.
        """
        async with self._looking:
            if time.monotonic() - self._looked_at > FRESH:
                self._is_ready = await self._look()
                self._looked_at = time.monotonic()
        age = round(time.monotonic() - self._seen, 1)
        configuration = "refused" if self._served.current.is_refused else "in force"
        content = {"ready": self._is_ready, "snapshot_age": age, "configuration": configuration}
        status = 200 if self._is_ready else 503
        return Response(orjson.dumps(content), status, media_type="application/json")

    async def _look(self) -> bool:
        try:
            with anyio.fail_after(PATIENCE):
                await (await self._served.backend.runner()).ready()
                return True
        except (TimeoutError, errors.DbtoolsError):
            return False
