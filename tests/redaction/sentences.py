"""Two hundred harmless sentences about secrets, as people, documents and programs write them."""

from __future__ import annotations

_SUBJECTS = (
    "The basic requirements of {} are met.",
    "Basic authentication is not offered for {}.",
    "The bearer of bad news about {} was late.",
    "Please reset the password for {} first.",
    "A token of thanks goes to everyone at {}.",
    "The cookie_policy of {} changed in May.",
    "max_tokens is 4096 and token_count is 17 for {}.",
    "Ask {} for the secret: it is kept by Wednesday's shift.",
    "password: required, unless {} says otherwise",
    "Secret: Wednesday, when {} opens",
    "Each session at {} costs $45, and passes are sold at the door.",
    "auth_method: basic, as {} has asked for",
    "The pass for {} is valid for 30 days; pin it to the board.",
    "Authorization is needed before {} is refunded.",
    'api_key = os.environ["KEY"]  # of {}',
    "https://example.org/docs/password-reset?topic={}&page=2",
)
_PLACES = ("the desk", "Ulm", "order A17", "our airline", "the sk-learn-compatible-estimators", "Basic Economy",
           "gate 12", "the library", "flight HAT045", "reservation 4WQ150", "room 7", "June")  # fmt: skip

SENTENCES = (
    *(form.format(place) for form in _SUBJECTS for place in _PLACES),
    "token = next(tokens)",
    "password = getpass.getpass()",
    "def login(user: str, password: str) -> Token: ...",
    "secret_level=3, has_password=True, password_reset_count=12",
    "export API_KEY=$KEY",
    "api_key: ${{ secrets.API_KEY }}",
    "client_secret=<your secret here>",
    "Authorization: required",
)
assert len(SENTENCES) == 200
