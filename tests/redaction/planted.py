"""Ninety-nine planted secrets, each in a place where real ones stand, and sixty-eight harmless texts that look like them."""

from __future__ import annotations

import base64
import json
import random
import string
from typing import Any, Final

_RANDOM = random.Random("planted")
_LETTERS: Final = string.ascii_letters + string.digits
HEX: Final = "0123456789abcdef"
UPPER: Final = string.ascii_uppercase + string.digits


def _of(length: int, alphabet: str = _LETTERS) -> str:
    # Real ones of this length practically always have letters and digits in turn.
    text = "".join(_RANDOM.choices(alphabet, k=length))
    return text if len(set(text) & set(string.digits)) > 1 and not text.isdigit() else _of(length, alphabet)


W: Final = "h7Kq2vZx9LmT"  # a password
P: Final = "hunter2-x9!"  # one with signs
K: Final = _of(32, HEX)
_BASE64 = base64.b64encode(_of(30).encode()).decode()


def _vendor(prefix: str, length: int, alphabet: str = _LETTERS) -> tuple[str, str]:
    secret = prefix + _of(length, alphabet)
    return f"the bot uses {secret} for now", secret


PLANTED: Final[dict[str, tuple[Any, str]]] = {
    # On a command line
    "option=": (f"mysqldump --password={W} shop", W),
    "option = quoted": (f"run --password='{P}' now", P),
    "api-key=": (f"tool --api-key={K}", K),
    "token and blank": (f"gh auth login --token {K}", K),
    "password and blank": (f"deploy --host db --password {W} --force", W),
    "single dash": (f"java -Dx=1 -password {W}", W),
    "underscores": (f"run --client_secret {K}", K),
    "quoted after blank": (f'run --api-key "{K}" --verbose', K),
    "option in a second line": (f"curl https://example.org \\\n  --token {W}", W),
    "pin option": ("card --pin 4821 --amount 3", "4821"),
    "-u": (f"curl -u ann:{W} https://example.org", W),
    "--user": (f"curl --user ann:{P} https://example.org", P),
    "--user=": (f"curl --user=ann:{W} https://example.org", W),
    "--proxy-user": (f"curl --proxy-user 'ann:{W}' https://example.org", W),
    "-u of letters": ("curl -u ann:correcthorse https://example.org", "correcthorse"),
    "-u quoted": (f'http -u "ann:{W}" example.org', W),
    "arguments": ({"command": ["deploy", "--password", W]}, W),
    "arguments as text": (json.dumps(["deploy", "--api-key", K]), K),
    "arguments of curl": ({"argv": ["curl", "-u", f"ann:{W}"]}, W),
    "arguments of curl as text": (repr(["curl", "-u", f"ann:{W}"]), W),
    "header option": (f"curl -H 'X-Api-Key: {K}'", K),
    "environment of a command": (f"PGPASSWORD={W} psql", W),
    # A name beside its value
    "name and value": ({"name": "DB_PASSWORD", "value": W}, W),
    "name and value as text": (json.dumps({"name": "DB_PASSWORD", "value": W}), W),
    "name and value indented": (json.dumps({"env": [{"name": "DB_PASSWORD", "value": W}]}, indent=2), W),
    "value and name": (json.dumps({"value": W, "name": "DB_PASSWORD"}), W),
    "value before name": ({"value": W, "name": "apiKey"}, W),
    "with more between": (json.dumps({"name": "API_TOKEN", "type": "text", "value": K}), K),
    "key and value": ({"key": "client-secret", "value": W}, W),
    "Key and Value": (json.dumps({"Key": "DbPassword", "Value": W}), W),
    "of letters": ({"name": "password", "value": "correcthorse"}, "correcthorse"),
    "of letters as text": (json.dumps({"name": "password", "value": "correcthorse"}), "correcthorse"),
    "a long number": (json.dumps({"name": "passcode", "value": 482113}), "482113"),
    "header and value": ({"header": "X-Api-Key", "value": K}, K),
    "python": (repr({"name": "DB_PASSWORD", "value": W}), W),
    "kubernetes": (f"env:\n  - name: DB_PASSWORD\n    value: {W}\n", W),
    "kubernetes quoted": (f'env:\n- name: "DB_PASSWORD"\n  value: "{P}"\n', P),
    "attribute of a span": (json.dumps({"key": "db.password", "value": {"stringValue": W}}), W),
    "JSON in JSON": (json.dumps({"a": json.dumps([{"name": "API_KEY", "value": K}])}), K),
    # Lists of pairs
    "pairs": ([["X-Api-Key", K]], K),
    "pairs as text": (json.dumps([["Accept", "json"], ["X-Api-Key", K]]), K),
    "tuples": ({"headers": [("Host", "a"), ("X-Api-Key", W)]}, W),
    "tuples as text": (repr([("X-Auth-Token", W)]), W),
    "bytes": ([(b"x-api-key", K.encode())], K),
    "pairs over lines": (json.dumps([["password", P]], indent=1), P),
    # YAML, XML, netrc, tables
    "literal block": (f"db:\n  password: |\n    {W}\n  port: 1", W),
    "folded block": (f"token: >-\n  {K}\nnext: 1", K),
    "block of two lines": (f"secret: |2\n  one {W}\n  two {P}\n", P),
    "block in a list": (f"- api_key: |+\n    {K}\n- b: 1", K),
    "block in JSON": (json.dumps({"file": f"password: |\n  {W}\nport: 1"}), W),
    "element": (f"<db><user>ann</user><password>{W}</password></db>", W),
    "element with attributes": (f'<apiKey type="x">{K}</apiKey>', K),
    "element over lines": (f"<secret>\n  {K}\n</secret>", K),
    "element of a namespace": (f"<wsse:Password>{W}</wsse:Password>", W),
    "element of data": (f"<token><![CDATA[{K}]]></token>", K),
    "attribute": (f'<connection user="ann" password="{W}"/>', W),
    "attribute pair": (f'<add key="ApiKey" value="{K}" />', K),
    "attribute and content": (f'<string name="api_key">{K}</string>', K),
    "property": (f'<property name="db.password"><value>{W}</value></property>', W),
    "name element": (f"<property><name>db.password</name>\n  <value>{W}</value></property>", W),
    "plist": (f"<key>password</key>\n\t<string>{P}</string>", P),
    "netrc in a line": ("machine example.org login ann password correcthorse", "correcthorse"),
    "netrc over lines": (f"machine example.org\n  login ann\n  password {W}\n", W),
    "netrc default": (f"default login anonymous password {W}", W),
    "netrc password first": (f"machine example.org password {P} login ann", P),
    "csv": (f"user,password,role\nann,{W},admin\n", W),
    "csv, second row": (f"user,password\nann,required\nbob,{W}", W),
    "csv, first column": (f"api_key;name\n{K};shop\n", K),
    "csv, last column": (f"id,name,token\r\n1,shop,{K}\r\n", K),
    "csv, quoted": (f'"user","password"\n"ann, b.","{P}"\n', P),
    "tsv": (f"user\tpassword\nann\t{W}\n", W),
    "table of a page": (f"| user | password |\n|---|---|\n| ann | {W} |\n", W),
    "rows": ([["user", "password"], ["ann", W]], W),
    # Addresses
    "?key=": (f"GET https://maps.example.org/v1?key={K}", K),
    "&key=": (f"https://example.org/v1?q=ulm&key={_of(20)}", ""),
    "?sig=": (f"https://example.org/v1?signature={K}", K),
    "?token=": (f"https://example.org/v1?access_token={W}", W),
    # Issuers
    "slack app": _vendor("xapp-1-A01-2-", 40),
    "gitlab feed": _vendor("glft-", 24),
    "gitlab runner": _vendor("GR1348941", 22),
    "square": _vendor("sq0csp-", 43),
    "mailchimp": _vendor("", 32, HEX),
    "discord": _vendor("M", 23),
    "twilio": _vendor("SK", 32, HEX),
    "digitalocean": _vendor("dop_v1_", 64, HEX),
    "shopify": _vendor("shpat_", 32, HEX),
    "databricks": _vendor("dapi", 32, HEX),
    "vault": _vendor("hvs.", 24),
    # Names
    "passWord": ({"passWord": W}, W),
    "passWord in text": (f"passWord = {W}", W),
    "full-width": (f"\uff50\uff41\uff53\uff53\uff57\uff4f\uff52\uff44: {W}", W),
    "full-width key": ({"\uff41\uff50\uff49\uff3f\uff4b\uff45\uff59": W}, W),
    "full-width sign": (f"password\uff1a{W}", W),
    "private_key_pem": ({"private_key_pem": _BASE64}, _BASE64),
    "private_key_pem in text": (f"private_key_pem={_BASE64}", _BASE64),
    "passcode": ({"passcode": "482113"}, "482113"),
    "passcode in JSON": ('{"door_passcode": "open-7-sesame"}', "open-7-sesame"),
    "one word": (f"dbpassword={W}", W),
    "access token in one word": ({"accesstoken": K}, K),
}
# Those whose secret is not all that was made above.
PLANTED["&key="] = (PLANTED["&key="][0], str(PLANTED["&key="][0]).rpartition("=")[2])
for _name, _tail in (("mailchimp", "-us14"), ("discord", f".{_of(6)}.{_of(27)}")):
    _secret = PLANTED[_name][1] + _tail
    PLANTED[_name] = (f"the bot uses {_secret} for now", _secret)

HARMLESS: Final[tuple[Any, ...]] = (
    "Pass --password to log in, or --token for robots.",
    "Use --token with care.",
    "The option --api-key is required.",
    "run --password $PASSWORD --token ${TOKEN}",
    "run --password <your password>",
    "run --password-file /run/secrets/db --token-count 12",
    "run --max-tokens 4096 --no-password",
    "docker build --secret id=aws,src=keys.txt .",
    "docker run -u 1000:1000 -p 8080:80 image",
    "chown -u www-data:www-data /var/www",
    "sudo -u postgres psql",
    "ssh -p 2222 -u root example.org",
    "python -u script.py",
    ["deploy", "--password", "required"],
    ["curl", "-u", "1000:1000"],
    json.dumps(["--token", "--verbose"]),
    {"name": "password", "type": "string", "required": True},
    {"name": "password", "value": ""},
    {"name": "password", "value": None},
    {"name": "token_count", "value": "4096 of 8192"},
    {"name": "max_tokens", "value": 4096},
    {"name": "colour", "value": "red-4711-x"},
    {"name": "reset_password", "arguments": '{"user": "ann"}'},
    {"role": "tool", "name": "get_token", "content": "The token of thanks was handed over in 2024."},
    {"type": "function_call", "name": "send_otp", "call_id": "call_A17b22", "arguments": "{}"},
    json.dumps({"name": "password", "in": "query", "schema": {"type": "string"}}),
    json.dumps({"name": "api_key", "description": "The key 4711-b of the board."}),
    '{"name": "token_count", "value": "x9y8z7w6v5"}',
    "env:\n  - name: DB_PASSWORD\n    valueFrom:\n      secretKeyRef: {name: shop-db, key: entry1}\n",
    "- name: DB_PASSWORD\n  valueFrom: x\n- name: REGION\n  value: eu-central-1\n",
    ["password", "username"],
    ["token", "session_id2"],
    json.dumps({"required": ["password", "email"]}),
    "('password', 'username')",
    "['token', 'secret']",
    "required: [password, email_2]",
    "password: |\n  required\n",
    "secret: >\n  one or two words of prose\n",
    "description: |\n  abc123def456\n",
    "password:\n  type: string\n  minLength: 12\n",
    "<password>required</password>",
    "<label for='password'>Your password</label>",
    "<input type='password' name='password' placeholder='8 or more characters'>",
    "<xs:element name='password' type='xs:string'/>",
    "<secret>The answer is 42, and there is no other one.</secret>",
    "<token>${TOKEN}</token>",
    "<tokens>48,121</tokens>",
    "<key>name</key><string>abc123def456</string>",
    "The machine needs a password reset.",
    "machine learning password policies",
    "The default login page asks for a password first.",
    "user,password\nann,required\nbob,optional\n",
    "name,token_count\na,4096\nb,8192\n",
    "Passwords, tokens, and secrets\nare words, as are these 3, and those 4\n",
    "| Field | Password |\n|---|---|\n| length | 12 |\n",
    "user,pass rate\nann,0.93\n",
    "password, token, or key\nall three, or none, of v1.2.3\n",
    "https://example.org/search?key=name&sort=asc",
    "https://example.org/v1?key=A17&page=2",
    "https://example.org/board?key=2024-05-01",
    "https://example.org/docs/password-reset?topic=the-first-key",
    "https://example.org/a?code=HAT045",
    "xapp-1 is the first application.",
    "SKU numbers such as SK1234 and APC1234 are on the label.",
    "locale en-us14 and de-us1",
    "glft- and dapi are prefixes of tokens, hvs. too.",
    "passWords are hashed. Every passCode policy is written down.",
    "\u5bc6\u7801\uff1a\u5fc5\u586b\u3002\u30d1\u30b9\u30ef\u30fc\u30c9\uff1a\u5fc5\u9808",
)
assert len(PLANTED) == 99, len(PLANTED)
assert len(HARMLESS) == 68, len(HARMLESS)
