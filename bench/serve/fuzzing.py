"""Requests that are broken in many ways, and what a server answers to them."""
import json
import re
import socket

CHAT = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "max_tokens": 4, "temperature": 0.5, "stream": False, "stop": ["x"], "n": 1, "seed": 3,
        "top_p": 0.9, "logit_bias": {"5": -3}, "logprobs": True, "top_logprobs": 2,
        "response_format": {"type": "json_object"},
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {
            "type": "object", "properties": {"a": {"type": "integer"}}}}}]}
TALK = {"model": "llama-spm", "max_tokens": 4, "messages": [
    {"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}
# Paths that are 501 by design are left out.
SEEDS = [
    ("POST", "/v1/chat/completions", CHAT),
    ("POST", "/v1/chat/completions", {"messages": CHAT["messages"], "max_tokens": 3,
                                      "stream": True}),
    ("POST", "/v1/completions", {"prompt": ["Hi", "Ho"], "max_tokens": 3, "echo": True,
                                 "logprobs": 1}),
    ("POST", "/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 3, "stream": True, "n": 2}),
    ("POST", "/v1/embeddings", {"input": ["a", "b"], "dimensions": 4}),
    ("POST", "/v1/responses", {"input": "Hi", "max_output_tokens": 4}),
    ("POST", "/v1/messages", {**TALK, "system": "Be brief."}),
    ("POST", "/v1/messages/count_tokens", TALK),
    ("POST", "/api/chat", {"messages": CHAT["messages"], "options": {"num_predict": 3}}),
    ("POST", "/api/generate", {"prompt": "Hi", "options": {"num_predict": 3}, "raw": True}),
    ("POST", "/api/embed", {"input": "a"}),
    ("POST", "/api/show", {"model": "llama-spm"}),
    ("POST", "/tokenize", {"content": "Hello", "add_special": True}),
    ("POST", "/detokenize", {"tokens": [5, 6]}),
    ("POST", "/apply-template", {"messages": CHAT["messages"]}),
    ("POST", "/v1/rerank", {"query": "a", "documents": ["b", "c"], "top_n": 1}),
    ("POST", "/infill", {"input_prefix": "a", "input_suffix": "b", "n_predict": 3}),
    ("POST", "/v1/feedback", {"response_id": "chatcmpl-1", "rating": "up"}),
    ("POST", "/v1/learning/rollback", {"generation": 1}),
    ("POST", "/v1/learning/forget", {"text": "nothing"}),
    ("POST", "/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "b"}),
    ("GET", "/v1/models", None),
    ("GET", "/v1/models/x", None),
    ("GET", "/v1/responses/resp_1", None),
    ("DELETE", "/v1/responses/resp_1", None),
    ("GET", "/v1/learning", None),
    ("GET", "/metrics", None),
    ("GET", "/", None),
]
VALUES = [None, True, False, 0, -1, 1, 2**31, 2**63, -2**63, 1e308, 0.5, "", "x", "\u0000",
          "\ud83d", [], {}, [[]], [None], {"type": "x"}, "a" * 3000, [1] * 300, {"": {"": []}}]
BYTES = [b"\r\n", b"\n", b"\0", b" ", b":", b"{", b"}", b"[", b"\xff", b"\xc3", b'"', b"\\u", b"%",
         b"chunked", b"content-length: 5\r\n", b"transfer-encoding: chunked\r\n", b"-1", b"9" * 30]


def places(value, path=()):
    """Of all values inside a value."""
    yield path
    if isinstance(value, (dict, list)):
        for k, v in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(v, path + (k,))


def mutated(rnd, value):
    """A copy with another value at some place, or one member less, or one more."""
    value = json.loads(json.dumps(value))
    path = rnd.choice(list(places(value)))
    if not path:
        return rnd.choice(VALUES)
    inside = value
    for k in path[:-1]:
        inside = inside[k]
    how = rnd.randrange(4)
    if how == 0 and isinstance(inside, dict):
        del inside[path[-1]]
    elif how == 1 and isinstance(inside, dict):
        inside[rnd.choice(["x", "stop", "grammar", "json_schema", "tools", "suffix"])] = (
            rnd.choice(VALUES))
    else:
        inside[path[-1]] = rnd.choice(VALUES)
    return value


def scrambled(rnd, data):
    """Some bytes other, more or fewer."""
    data = bytearray(data)
    for _ in range(rnd.randrange(1, 4)):
        at = rnd.randrange(len(data) + 1)
        how = rnd.randrange(4)
        if how == 0 and at < len(data):
            data[at] = rnd.randrange(256)
        elif how == 1:
            data[at:at] = rnd.choice(BYTES)
        elif how == 2:
            del data[at:at + rnd.randrange(1, 9)]
        else:
            data[at:] = data[at:] + data[at:at + 40]
    return bytes(data)


def request(rnd):
    """The bytes of one request, or of two."""
    method, path, body = rnd.choice(SEEDS)
    for _ in range(rnd.randrange(3)):
        body = mutated(rnd, body) if body is not None else None
    text = b"" if body is None else json.dumps(body).encode()
    if text and rnd.random() < 0.2:
        text = scrambled(rnd, text)
    if rnd.random() < 0.1:
        framed = b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(text), text)
    else:
        framed = b"content-length: %d\r\n\r\n%s" % (len(text), text)
    data = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n".encode() + framed
    if rnd.random() < 0.3:
        data = scrambled(rnd, data)
    return data * 2 if rnd.random() < 0.05 else data


def exchange(port, data):
    """The statuses that come back before the server, or a while of silence, ends the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as s:
        out = b""
        try:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            while True:
                got = s.recv(65536)
                if not got:
                    break
                out += got
        except (ConnectionError, BrokenPipeError):
            pass
        except socket.timeout:
            return [599]
    return [int(x) for x in re.findall(rb"(?m)^HTTP/1\.1 (\d\d\d) ", out)]
