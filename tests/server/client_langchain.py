#!/usr/bin/env python3
"""`langchain-openai` from PyPI, unmodified, against `ruvllm serve` with SmolLM2: chat, stream,
structured output, embeddings, the Responses API, errors. Skipped where the package or the model
cannot be had. Prints TAP."""
from packages import run_with

run_with("langchain-openai==1.7.3")

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


if not has_smollm2():
    skip("langchain-openai", "smollm2 is not on this machine")
else:
    with Server(model="smollm2") as server:
        langchain(f"http://127.0.0.1:{server.port}")
finish()
