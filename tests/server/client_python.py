#!/usr/bin/env python3
"""`langchain-openai` and `litellm` from PyPI, unmodified, against `ruvllm serve` with SmolLM2: chat,
stream, structured output, embeddings, errors. Skipped where a package or the model cannot be had.
Prints TAP."""
import os

from packages import run_with

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is fetched
run_with("langchain-openai==1.7.3", "litellm==1.108.4")

import litellm  # noqa: E402
import pydantic  # noqa: E402
from langchain_openai import ChatOpenAI, OpenAIEmbeddings  # noqa: E402

from serving import Server, finish, has_smollm2, skip, verdict  # noqa: E402

ASK = "Name the capital city of France."


class City(pydantic.BaseModel):
    name: str
    country: str


def langchain(url):
    chat = ChatOpenAI(model="smollm2", base_url=url + "/v1", api_key="any", temperature=0,
                      max_tokens=60)
    r = chat.invoke([("system", "You are a helper."), ("human", ASK)])
    verdict("langchain: a chat", "Paris" in r.content and
            r.response_metadata["finish_reason"] == "stop" and r.usage_metadata["output_tokens"],
            r)
    pieces = list(chat.stream([("system", "You are a helper."), ("human", ASK)]))
    verdict("langchain: a stream says the same", "".join(p.content for p in pieces) == r.content,
            pieces)
    city = chat.with_structured_output(City, method="json_schema").invoke(ASK)
    verdict("langchain: structured output", isinstance(city, City), city)
    vectors = OpenAIEmbeddings(model="smollm2", base_url=url + "/v1", api_key="any",
                               check_embedding_ctx_length=False).embed_documents(["tea", "cake"])
    verdict("langchain: embeddings", len(vectors) == 2 and len(vectors[0]) == 576)
    responses = ChatOpenAI(model="smollm2", base_url=url + "/v1", api_key="any", temperature=0,
                           max_tokens=60, use_responses_api=True).invoke(ASK)
    verdict("langchain: the Responses API", "Paris" in responses.text, responses)
    try:
        chat.invoke("tea " * 20000)
        trouble = None
    except Exception as e:  # its own class for this, by the words of the server
        trouble = e
    verdict("langchain: a prompt that is too long is told as such",
            "context" in type(trouble).__name__.lower() or
            "maximum context length" in str(trouble), repr(trouble))


def lite(url):
    asked = {"messages": [{"role": "user", "content": ASK}], "temperature": 0, "max_tokens": 60}
    ways = {"openai/smollm2": {"api_base": url + "/v1", "api_key": "any"},
            "anthropic/smollm2": {"api_base": url, "api_key": "any"},
            "ollama_chat/smollm2": {"api_base": url}}
    texts = set()
    for model, way in ways.items():
        r = litellm.completion(model=model, **way, **asked)
        text = r.choices[0].message.content
        texts.add(text)
        verdict(f"litellm: {model}", "Paris" in text and r.usage.completion_tokens > 0, r)
        pieces = [p.choices[0].delta.content or ""
                  for p in litellm.completion(model=model, stream=True, **way, **asked)]
        verdict(f"litellm: {model} streams the same", "".join(pieces) == text, pieces)
    verdict("litellm: one answer in three dialects", len(texts) == 1, texts)
    r = litellm.embedding(model="openai/smollm2", input=["tea"], **ways["openai/smollm2"])
    verdict("litellm: embeddings", len(r.data[0]["embedding"]) == 576)
    for name, changes, kind in (
            ("an unknown model", {"model": "openai/gpt-5"}, litellm.NotFoundError),
            ("a prompt that is too long", {"model": "openai/smollm2", "messages": [
                {"role": "user", "content": "tea " * 20000}]},
             litellm.ContextWindowExceededError)):
        try:
            litellm.completion(**{**asked, **ways["openai/smollm2"], **changes})
            trouble = None
        except Exception as e:
            trouble = e
        verdict(f"litellm: {name} is {kind.__name__}", isinstance(trouble, kind), repr(trouble))


if not has_smollm2():
    skip("langchain-openai and litellm", "smollm2 is not on this machine")
else:
    with Server(model="smollm2") as server:
        langchain(f"http://127.0.0.1:{server.port}")
        lite(f"http://127.0.0.1:{server.port}")
finish()
