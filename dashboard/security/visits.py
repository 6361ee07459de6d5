"""Visitors: a signed cookie for each browser, the user who is logged in there, and the tokens of its forms.

    cookie = "<id>.<signature>"         HttpOnly, SameSite=Strict; its id says nothing about the user
    token  = HMAC(secret, "form" + id)  in every form; a request that changes something must bring it back

Users and their secrets are in this process's memory alone, and gone when it ends, as all cookies are.

Lives here: ``Visit``, ``Visits``.
"""

import hmac
import secrets
import time
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from pocketmq.dashboard.options import DashboardOptions
from pocketmq.remoting.security.credentials import Credentials

COOKIE: Final = "pocketmq_dashboard"
VISITS_MAX: Final = 1_000
"""Users that are logged in at the same time."""
IDLE_S: Final = 30 * 60
LIFE_S: Final = 12 * 60 * 60
_ID_CHARACTERS: Final = 32


@dataclass(slots=True)
class _LoggedIn:
    credentials: Credentials
    began_ns: int
    seen_ns: int


@dataclass(frozen=True, slots=True)
class Visit:
    """One request's visitor. ``user``: who is logged in, empty for nobody; ``token``: for the forms of the answer."""

    id: str
    token: str
    is_new: bool
    user: str = ""
    credentials: Credentials | None = None


class Visits:
    """Knows the visitors of one dashboard."""

    def __init__(self, options: DashboardOptions) -> None:
        self._options = options
        self._secret = secrets.token_bytes(32)
        self._logged_in: dict[str, _LoggedIn] = {}

    def of(self, request: Request, *, is_here: bool = True) -> Visit:
        """Return the visitor; one without a valid cookie is new. ``is_here`` False: a page that is open, and nobody may
        look at, does not keep its user logged in."""
        visit_id = self._id_of(request.cookies.get(COOKIE, ""))
        is_new = not visit_id
        if is_new:
            visit_id = secrets.token_urlsafe(24)
        known = self._logged_in.get(visit_id)
        if known is not None:
            now_ns = time.monotonic_ns()
            if now_ns - known.seen_ns > IDLE_S * 1e9 or now_ns - known.began_ns > LIFE_S * 1e9:
                del self._logged_in[visit_id]
                known = None
            elif is_here:
                known.seen_ns = now_ns
        credentials = known.credentials if known is not None else self._options.credentials
        user = credentials.access_key if credentials is not None else ""
        return Visit(visit_id, self._sign("form", visit_id), is_new, user if known or credentials else "", credentials)

    def is_logged_in(self, visit: Visit) -> bool:
        """Return whether a user has logged in there."""
        return visit.id in self._logged_in

    def log_in(self, visit: Visit, credentials: Credentials) -> Visit:
        """Return a new visit of this user: the old cookie, which somebody else may have set, is worth nothing."""
        self._logged_in.pop(visit.id, None)
        while len(self._logged_in) >= VISITS_MAX:
            del self._logged_in[min(self._logged_in, key=lambda each: self._logged_in[each].seen_ns)]
        visit_id, now_ns = secrets.token_urlsafe(24), time.monotonic_ns()
        self._logged_in[visit_id] = _LoggedIn(credentials, now_ns, now_ns)
        return Visit(visit_id, self._sign("form", visit_id), True, credentials.access_key, credentials)

    def log_out(self, visit: Visit) -> bool:
        """Forget the user of a visit; return whether the same user is logged in nowhere else."""
        gone = self._logged_in.pop(visit.id, None)
        return gone is not None and all(each.credentials != gone.credentials for each in self._logged_in.values())

    def set_cookie(self, visit: Visit, response: Response) -> None:
        """Give the browser its cookie."""
        response.set_cookie(
            COOKIE,
            f"{visit.id}.{self._sign('visit', visit.id)}",
            path="/",
            secure=self._options.https,
            httponly=True,
            samesite="strict",
        )

    def is_meant(self, request: Request, visit: Visit, token: str) -> bool:
        """Return whether a change was asked for by a form of ours: it has the token, and comes from our own pages."""
        origin = request.headers.get("origin", "")
        own = f"{request.url.scheme}://{request.headers.get('host', '')}"
        if origin and origin != own:
            return False
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return False
        return not visit.is_new and hmac.compare_digest(token.encode(), visit.token.encode())

    def _id_of(self, cookie: str) -> str:
        visit_id, _, signature = cookie.partition(".")
        if len(visit_id) != _ID_CHARACTERS or not cookie.isascii():
            return ""
        return visit_id if hmac.compare_digest(signature, self._sign("visit", visit_id)) else ""

    def _sign(self, purpose: str, visit_id: str) -> str:
        return hmac.new(self._secret, f"{purpose}:{visit_id}".encode(), "sha256").hexdigest()
