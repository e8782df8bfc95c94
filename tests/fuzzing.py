"""Requests made at random from the routes of an app: nearly right, wrong in one place, or wrong altogether."""

from __future__ import annotations

import json
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
from fastapi import FastAPI

from api.keys import new_key
from tests.given_requests import SECRET, World, routes_of

# A secret of a caller: planted where a value has the wrong form, it must not come back.
PLANTED = "sk-planted-9aQ7xW2mKe"

NASTY_TEXTS = (
    "", " ", "..", ".", "../..", "%2e%2e", "a/../b", "/", "//", "\\..\\", "~", "-", "a@1", "@", "a@@1", "名", "é",
    "e\u0301", "\u202e", "\ufeff",
    "😀", "'", '"', "`", "<script>", "${x}", "{0}", "%s", "%n", "null", "NaN", "1e999", "0", "-1", "9" * 30,
    "a" * 300, "a" * 5_000, "\x7f", "\x85",
    "\u2028", "\ud7ff", "\uffff", "' OR 1=1 --", "; DROP TABLE entries", "*", "?", "#", "\t", "\r\nX: y", "true", "١",
    "00000000-0000-0000-0000-000000000000", "a" * 64, "A" * 64, "..%00",
)  # fmt: skip
NASTY_JSON = (
    b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999", b"1e-999", b"9" * 5_000, b"18446744073709551616",
    b"-9223372036854775809",
    b"1" + b"0" * 400, rb'"\ud800"', rb'"\udfff\ud800"', b'"\xed\xa0\x80"', b'"\xff"', rb'"\u0000"', b'"\x00"',
    b"[" * 5_000 + b"]" * 5_000,
    b'{"a":' * 5_000 + b"1" + b"}" * 5_000, b"[" * 70 + b"]" * 70, b'{"a":1,"a":2}', b'{"":""}', b"{}", b"[]",
    b"null", b"true", b"-0", b"1.0", b"01",
    b".5", b"'a'", b"undefined", b'"' + b"a" * 70_000 + b'"', b"[" + b"0," * 5_000 + b"0]", rb'"\x"', b'"', b"",
)  # fmt: skip
NASTY_BYTES = (
    b"%00", b"%ff", b"%c0%ae%c0%ae", b"%ed%a0%80", b"%", b"%4", b"%zz", b"%2e%2e", b"%2E%2e%2f", b"..%2f..",
    b"%5c..%5c", b"%2f", b"\xff", b"\x00", b"%0d%0a",
    b"%25%32%65", b"a" * 9_000, b"%f4%90%80%80",
)  # fmt: skip
MEDIA = (
    "application/json", "application/x-ndjson", "application/octet-stream", "text/plain",
    "multipart/form-data; boundary=x", "application/xml", "", "/",
    "application/json; charset=utf-16", "x" * 500,
)  # fmt: skip
HEADERS = (
    ("idempotency-key", "é"), ("idempotency-key", "x" * 300), ("idempotency-key", "r-1"), ("if-none-match", '"'),
    ("if-none-match", "*"),
    ("range", "bytes=0-0"), ("range", "bytes=9-1,-,x"), ("range", "bytes=" + "0-1," * 500), ("range", "bytes=-0"),
    ("range", "x"),
    ("content-range", "bytes 0-1/2"), ("content-range", "bytes */*"), ("content-range", "bytes 9-1/" + "9" * 30),
    ("content-range", "x"),
    ("content-length", "-1"), ("content-length", "9" * 30), ("content-length", "1"), ("content-length", "x"),
    ("content-encoding", "gzip"),
    ("transfer-encoding", "chunked"), ("expect", "100-continue"), ("accept", "text/plain;q=x"), ("accept",
    "application/xml"), ("last-event-id", "-1"),
    ("last-event-id", "9" * 40), ("last-event-id", "é"), ("x-request-id", "a b\x7f"), ("host", "evil.example"),
    ("host", ""), ("cookie", "a=b"),
    ("x-http-method-override", "DELETE"), ("upgrade", "websocket"), ("upload-offset", "x"), ("if-match", "*"),
    ("if-range", "x"),
)  # fmt: skip


class Made(NamedTuple):
    """A request as it is sent."""

    method: str
    target: bytes
    headers: list[tuple[bytes, bytes]]
    chunks: list[bytes]
    cut: bool


class Fuzzer:
    """Makes requests; the same seed makes the same ones."""

    def __init__(self, app: FastAPI, world: World, seed: int) -> None:
        self.random = Random(seed)
        self.calm = False  # whether the request at hand is to be a right one, as far as its schema says
        self.world = world
        self.routes = routes_of(app)
        self.document = msgspec.json.decode(app.state.openapi)
        self.schemas = self.document["components"]["schemas"]
        self.words = [*world.filling.values(), "sh@1", f"{world.filling['name']}@1", "team/eval@1", "ci", "read", "r-1"]

    def request(self) -> Made:
        """One request."""
        random = self.random
        self.calm = random.random() < 0.35
        route = random.choice(self.routes)
        operation = self.document["paths"][route.path_format][route.declared.method.lower()]
        method = (
            route.declared.method if random.random() < 0.97 else random.choice(["GET", "POST", "PATCH", "TRACE", "X"])
        )
        target = self._path(route.path_format) + self._query(operation)
        headers = [(b"host", b"127.0.0.1"), *self._authorization()]
        chunks, cut = [], False
        if body := self._body(operation):
            media, data = body
            headers.append((b"content-type", media.encode()))
            chunks, cut, length = self._sent(data)
            headers += length
        for _ in range(0 if self.calm else random.choice([0, 0, 0, 1, 2])):
            name, value = random.choice(HEADERS)
            headers.append((name.encode(), value.encode("utf-8")))
        return Made(method, target, headers, chunks, cut)

    def _authorization(self) -> list[tuple[bytes, bytes]]:
        random, keys = self.random, self.world.keys
        if self.calm:
            return [(b"authorization", f"Bearer {keys['admin']}".encode())]
        if random.random() < 0.9:
            text = f"Bearer {keys['admin']}"
        else:
            text = random.choice(
                [*(f"Bearer {key}" for key in keys.values()), "Bearer", f"Basic {PLANTED}", PLANTED, "é", ""]
            )
        return [(b"authorization", text.encode())] * random.choice([1] * 30 + [0, 2])

    def _path(self, path: str) -> bytes:
        random, made = self.random, []
        for part in path.split("/"):
            if not part.startswith("{"):
                made.append(part.encode() if self.calm or random.random() < 0.99 else random.choice(NASTY_BYTES))
                continue
            known = self.world.filling.get(part.strip("{}").partition(":")[0], "1")
            if self.calm or random.random() < (0.97 if part == "{project}" else 0.6):
                made.append(quote(known).encode())
            elif random.random() < 0.5:
                made.append(random.choice(NASTY_BYTES))
            elif random.random() < 0.1:
                made.append(new_key().encode())
            else:
                made.append(quote(random.choice(NASTY_TEXTS), safe="").encode())
        return b"/".join(made)

    def _query(self, operation: dict[str, Any]) -> bytes:
        random, pairs = self.random, []
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "query" and random.random() < (0.1 if self.calm else 0.25):
                value = self._value(parameter["schema"]) if random.random() < 0.6 else random.choice(NASTY_TEXTS)
                text = value if isinstance(value, str) else json.dumps(value)
                raw = quote(text, safe="").encode() if random.random() < 0.9 else random.choice(NASTY_BYTES)
                pairs += [parameter["name"].encode() + b"=" + raw] * random.choice([1, 1, 1, 2])
        if not self.calm and random.random() < 0.05:
            pairs.append(
                random.choice([b"x=1", b"=", b"&&", b"key=" + new_key().encode(), PLANTED.encode() + b"=1", b"%ff=1"])
            )
        return b"?" + b"&".join(pairs) if pairs else b""

    def _body(self, operation: dict[str, Any]) -> tuple[str, bytes] | None:
        random = self.random
        if "requestBody" not in operation:
            return None if random.random() < 0.95 else ("application/json", random.choice(NASTY_JSON))
        ((media, content),) = list(operation["requestBody"]["content"].items())[:1]
        if self.calm and media == "application/json":
            return media, json.dumps(self._value(content["schema"])).encode()
        if random.random() < 0.05:
            media = random.choice(MEDIA)
        if media != "application/json" or random.random() < 0.1:
            return media, random.choice(
                [*NASTY_JSON, PLANTED.encode(), b"\0" * 100, b'{"stream":"job/x","facts":[]}\n', b"\n\n"]
            )
        value = self._value(content["schema"])
        data = json.dumps(self._damaged(value)).encode() if random.random() < 0.6 else json.dumps(value).encode()
        if random.random() < 0.3:
            data = self._spliced(data)
        return media, data

    def _sent(self, data: bytes) -> tuple[list[bytes], bool, list[tuple[bytes, bytes]]]:
        random = self.random
        if self.calm:
            return [data], False, [(b"content-length", str(len(data)).encode())]
        if random.random() < 0.01:
            data = data + b" " * 3_000_000
        length = [(b"content-length", str(len(data)).encode())]
        if random.random() < 0.1:
            length = [(b"transfer-encoding", b"chunked")]
        if random.random() < 0.1:
            data = data[: random.randrange(len(data) + 1)]
        middle = random.randrange(len(data) + 1)
        return [data[:middle], data[middle:]], random.random() < 0.05, length

    def _damaged(self, value: Any, *, within: str = "") -> Any:
        """A value in which one part is something else.

        The planted secret never takes the place of a text, of a null, where a text may stand, or of a parameter's name:
        sentences say names.
        """
        random = self.random
        if isinstance(value, dict) and value and random.random() < 0.8:
            name = random.choice(list(value))
            if random.random() < 0.2:
                names = ["é", "", "a" * 1_000] if within == "params" else [PLANTED, "é", "", "a" * 1_000]
                return {**value, random.choice(names): PLANTED}
            if random.random() < 0.2:
                return {key: part for key, part in value.items() if key != name}
            if name == "secrets" and isinstance(value[name], dict):
                return {**value, name: {"TOKEN": random.choice([PLANTED, 1, None, [PLANTED], PLANTED * 10_000])}}
            return {**value, name: self._damaged(value[name], within=name)}
        if isinstance(value, list) and value and random.random() < 0.8:
            at = random.randrange(len(value))
            return [*value[:at], self._damaged(value[at]), *value[at + 1 :]]
        if isinstance(value, str):
            return random.choice([*NASTY_TEXTS, 1, None, [], {}, new_key()])
        # Nor may it become a text in a list or a name in an object of texts.
        planted: list[Any] = [PLANTED] if isinstance(value, list | dict) else [PLANTED, [PLANTED], {PLANTED: PLANTED}]
        if value is None:
            planted = []
        return random.choice([*planted, -1, 0, 2**63, 10**30, 0.5, 1e308, None, True, "", [], {}])

    def _spliced(self, data: bytes) -> bytes:
        """JSON text in which one value is bytes that are none."""
        random = self.random
        at = [place for place in range(len(data)) if data[place : place + 1] == b":"]
        place = random.choice(at) + 1 if at else 0
        end = min((e for e in (data.find(b",", place), data.find(b"}", place)) if e >= 0), default=len(data))
        return data[:place] + random.choice(NASTY_JSON) + data[end:]

    def _value(self, schema: dict[str, Any], depth: int = 0) -> Any:
        """A value that a schema describes, more or less."""
        random = self.random
        if "$ref" in schema:
            schema = self.schemas[schema["$ref"].rpartition("/")[2]]
        if (examples := schema.get("examples")) and random.random() < (0.8 if self.calm else 0.5):
            return random.choice(examples)
        if choices := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
            return self._value(random.choice(choices), depth)
        if "const" in schema or "enum" in schema:
            return schema["const"] if "const" in schema else random.choice(schema["enum"])
        kind = schema.get("type")
        match random.choice(kind) if isinstance(kind, list) else kind:
            case "object":
                required = schema.get("required", ())
                fields = schema.get("properties", {})
                value = {
                    n: self._value(f, depth + 1) for n, f in fields.items() if n in required or random.random() < 0.4
                }
                if not fields and isinstance(schema.get("additionalProperties"), dict):
                    value = {random.choice(self.words): self._value(schema["additionalProperties"], depth + 1)}
                return value
            case "array":
                if "prefixItems" in schema:
                    return [self._value(part, depth + 1) for part in schema["prefixItems"]]
                items = schema.get("items", {})
                return [self._value(items or {}, depth + 1) for _ in range(random.choice([0, 1, 1, 2]))]
            case "integer":
                return random.choice(
                    [schema.get("minimum", 0), schema.get("maximum", 9), 1, 2, random.randint(0, 1_000)]
                )
            case "number":
                return random.choice([0, 1, 0.5, schema.get("minimum", 0), 60])
            case "boolean":
                return random.random() < 0.5
            case "null":
                return None
            case _:
                return random.choice([*self.words, random.choice(NASTY_TEXTS)])


def echoes(answer: bytes, world: World, made: Made) -> list[str]:
    """The secrets that came back in an answer."""
    secrets = {"the planted secret": PLANTED, "the secret of a profile": SECRET}
    secrets |= {f"the key {name}": key for name, key in world.keys.items()}
    return [name for name, secret in secrets.items() if secret.encode() in answer]
