#!/usr/bin/env python3
"""`langchain-openai` from PyPI, unmodified, against `ruvllm serve` with SmolLM2: chat, stream,
tools, structured output, embeddings, the Responses API, errors, cancelling. It has no list of
models. Skipped where the package or the model cannot be had. Prints TAP."""
from packages import run_with

run_with("langchain-openai==1.7.3")

import openai  # noqa: E402
import pydantic  # noqa: E402
from langchain_core.messages import ToolMessage  # noqa: E402
from langchain_openai import ChatOpenAI, OpenAIEmbeddings  # noqa: E402

from serving import Server, finish, has_smollm2, skip, verdict  # noqa: E402

ASK = "Name the capital city of France."


class GetWeather(pydantic.BaseModel):
    """The weather in a city."""
    city: str = pydantic.Field(max_length=30)


class City(pydantic.BaseModel):
    name: str
    country: str


def tools(chat):
    asking = chat.bind_tools([GetWeather], tool_choice="any")
    asked = [("human", "What is the weather in Paris?")]
    r = asking.invoke(asked)
    call = r.tool_calls[0]
    verdict("langchain: a tool is called", call["name"] == "GetWeather" and
            GetWeather(**call["args"]) and r.response_metadata["finish_reason"] == "tool_calls", r)
    whole = None
    for piece in asking.stream(asked):
        whole = piece if whole is None else whole + piece
    verdict("langchain: streamed too", whole.tool_calls[0]["args"] == call["args"], whole)
    told = chat.invoke([*asked, r, ToolMessage("It rains.", tool_call_id=call["id"])])
    verdict("langchain: and its result is read", told.content, told)


def leaving(chat, server):
    before = server.metric("requests_cancelled_total")
    stream = chat.bind(max_tokens=4000, extra_body={"ignore_eos": True}).stream(ASK)
    for _ in zip(range(3), stream):
        pass
    stream.close()
    verdict("langchain: leaving a stream cancels it",
            server.wait_for_metric("requests_cancelled_total", before + 1) == before + 1)


def langchain(server):
    url = f"http://127.0.0.1:{server.port}"
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
    tools(chat)
    leaving(chat, server)
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
    other = ChatOpenAI(model="gpt-5", base_url=url + "/v1", api_key="any")
    try:
        other.invoke(ASK)
        trouble = None
    except openai.NotFoundError as e:
        trouble = e
    verdict("langchain: an unknown model is NotFoundError", trouble is not None and
            trouble.code == "model_not_found", trouble)


if not has_smollm2():
    skip("langchain-openai", "smollm2 is not on this machine")
else:
    with Server(model="smollm2") as server:
        langchain(server)
finish()
