#include <string.h>

#include "server/wish.h"

enum {
    CHAT = RVI_FOR_CHAT,
    COMPLETION = RVI_FOR_COMPLETION,
    EMBEDDING = RVI_FOR_EMBEDDING,
    RESPONSE = RVI_FOR_RESPONSE,
    MESSAGES = RVI_FOR_MESSAGES,
    TALK = RVI_FOR_TALK,
    GENERATE = RVI_FOR_GENERATE,
    VECTORS = RVI_FOR_VECTORS,
    OPTIONS = RVI_FOR_OPTIONS,
    OLLAMA = RVI_FOR_OLLAMA,
    NATIVE = RVI_FOR_NATIVE,
    INFILL = RVI_FOR_INFILL,
    RANKING = RVI_FOR_RANKING,
    OPENAI = CHAT | COMPLETION,
    TEXT = OPENAI | RESPONSE | MESSAGES, /* that is generated; Ollama has these in its options */
    ALL = TEXT | EMBEDDING | OLLAMA | VECTORS
};

#define AT(member) offsetof(rvi_wish, member)
#define PLAIN(name, what, kind)                                                                    \
    {                                                                                              \
        name, what, RVI_FIELD_##kind, 0, 0, 0, NULL                                                \
    }
#define VALUE(name, what, kind, min, max, member)                                                  \
    {                                                                                              \
        name, what, RVI_FIELD_##kind, min, max, AT(member), NULL                                   \
    }
#define SAMPLING(name, kind, min, max, member)                                                     \
    {                                                                                              \
        name, TEXT | OPTIONS | NATIVE, RVI_FIELD_##kind, min, max, AT(sampling.member), NULL       \
    }
#define REFUSE(name, what, harmless)                                                               \
    {                                                                                              \
        name, what, RVI_FIELD_REFUSED, 0, 0, 0, harmless                                           \
    }

static const rvi_field fields[] = {
    VALUE("temperature", TEXT | OPTIONS | NATIVE, FLOAT, 0, 2, temperature),
    SAMPLING("top_p", FLOAT, 0, 1, top_p),
    SAMPLING("top_k", INT, -1, 1e9, top_k),
    SAMPLING("min_p", FLOAT, 0, 1, min_p),
    SAMPLING("typical_p", FLOAT, 0, 1, typical_p),
    SAMPLING("top_n_sigma", FLOAT, 0, 100, top_n_sigma),
    SAMPLING("xtc_probability", FLOAT, 0, 1, xtc_probability),
    SAMPLING("xtc_threshold", FLOAT, 0, 1, xtc_threshold),
    SAMPLING("repetition_penalty", FLOAT, 0.01, 100, repetition_penalty),
    SAMPLING("repeat_penalty", FLOAT, 0.01, 100, repetition_penalty),
    VALUE("repeat_last_n", TEXT | NATIVE, INT, 1, 1e9, last_n),
    VALUE("repeat_last_n", OPTIONS, INT, -1, 1e9, last_n),
    SAMPLING("frequency_penalty", FLOAT, -2, 2, frequency_penalty),
    SAMPLING("presence_penalty", FLOAT, -2, 2, presence_penalty),
    SAMPLING("dry_multiplier", FLOAT, 0, 100, dry_multiplier),
    SAMPLING("dry_base", FLOAT, 1, 100, dry_base),
    SAMPLING("dry_allowed_length", INT, 1, 4096, dry_allowed_length),
    SAMPLING("seed", SEED, 0, 0, seed),
    VALUE("logit_bias", TEXT | OPTIONS, BIAS, -100, 100, sampling.logit_bias),
    PLAIN("logit_bias", NATIVE, OWN),
    VALUE("mirostat", TEXT | OPTIONS | NATIVE, INT, 0, 2, mirostat),
    VALUE("mirostat_tau", TEXT | OPTIONS | NATIVE, FLOAT, 0, 100, mirostat_tau),
    VALUE("mirostat_eta", TEXT | OPTIONS | NATIVE, FLOAT, 0, 1, mirostat_eta),
    VALUE("max_tokens", OPENAI, INT, -1, 1e9, max_tokens),
    VALUE("max_tokens", MESSAGES, INT, 0, 1e9, max_tokens),
    VALUE("max_output_tokens", RESPONSE, INT, 1, 1e9, max_tokens),
    VALUE("n_predict", NATIVE | COMPLETION, INT, -1, 1e9, max_tokens),
    VALUE("n_probs", NATIVE, LOGPROBS, 0, 20, top_logprobs),
    PLAIN("cache_prompt", NATIVE | OPENAI, OWN), /* what was computed is reused or not: same text */
    PLAIN("id_slot", NATIVE | OPENAI, OWN),
    PLAIN("return_tokens", NATIVE, OWN),
    PLAIN("response_fields", NATIVE, OWN),
    PLAIN("timings_per_token", NATIVE | OPENAI | RESPONSE, OWN),
    PLAIN("return_progress", NATIVE | OPENAI | RESPONSE, OWN),
    PLAIN("verbose", CHAT, OWN),
    PLAIN("add_generation_prompt", CHAT, OWN),
    PLAIN("continue_final_message", CHAT, OWN),
    REFUSE("post_sampling_probs", NATIVE, ""),
    VALUE("num_predict", OPTIONS, INT, -2, 1e9, max_tokens),
    VALUE("max_completion_tokens", CHAT, INT, -1, 1e9, max_completion_tokens),
    VALUE("min_tokens", TEXT | OPTIONS | NATIVE, INT, 0, 1e9, generate.min_tokens),
    VALUE("ignore_eos", TEXT | OPTIONS | NATIVE, FLAG, 0, 0, generate.ignore_eos),
    PLAIN("stop", OPENAI | RESPONSE | OPTIONS | NATIVE, STOPS),
    PLAIN("stop_sequences", MESSAGES, STOPS),
    VALUE("priority", ALL | NATIVE | RANKING, INT, -100, 100, priority),
    VALUE("timeout", ALL | NATIVE | RANKING, FLOAT, 0, 1e5, timeout),
    VALUE("session", TEXT | OLLAMA | NATIVE, TEXT, 1, RVI_SESSION_NAME, session),
    VALUE("n", OPENAI, INT, 1, RVI_WISH_CHOICES, n),
    VALUE("best_of", COMPLETION, INT, 1, RVI_WISH_CHOICES, n_best),
    VALUE("stream", TEXT | OLLAMA | NATIVE, FLAG, 0, 0, stream),
    VALUE("stream_options", OPENAI | RESPONSE, USAGE, 0, 0, include_usage),
    VALUE("logprobs", CHAT | OLLAMA, FLAG, 0, 0, logprobs),
    VALUE("top_logprobs", CHAT | OLLAMA, INT, 0, 20, top_logprobs),
    VALUE("logprobs", COMPLETION, LOGPROBS, 0, 20, top_logprobs),
    VALUE("echo", COMPLETION, FLAG, 0, 0, echo),
    VALUE("raw", GENERATE, FLAG, 0, 0, raw),
    VALUE("truncate", VECTORS, FLAG, 0, 0, truncate),
    VALUE("num_ctx", OPTIONS, INT, 1, 1e9, n_context),
    PLAIN("options", OLLAMA | VECTORS, OPTIONS),
    PLAIN("response_format", OPENAI, FORM),
    PLAIN("json_schema", OPENAI | NATIVE, FORM),
    PLAIN("grammar", OPENAI | NATIVE, FORM),
    PLAIN("guided_json", OPENAI, FORM),
    PLAIN("guided_regex", OPENAI, FORM),
    PLAIN("guided_choice", OPENAI, FORM),
    PLAIN("guided_grammar", OPENAI, FORM),
    PLAIN("text", RESPONSE, FORM),
    PLAIN("output_config", MESSAGES, FORM),
    PLAIN("output_format", MESSAGES, FORM),
    PLAIN("format", OLLAMA, FORM),
    VALUE("dimensions", EMBEDDING | VECTORS, INT, 1, 1e6, dimensions),
    PLAIN("encoding_format", EMBEDDING, OWN),
    PLAIN("input", EMBEDDING | RESPONSE | VECTORS, OWN),
    PLAIN("messages", CHAT | MESSAGES | TALK, OWN),
    PLAIN("prompt", COMPLETION | GENERATE | VECTORS | NATIVE, OWN),
    PLAIN("system", MESSAGES | GENERATE, OWN),
    PLAIN("instructions", RESPONSE, OWN),
    PLAIN("previous_response_id", RESPONSE, OWN),
    PLAIN("input_prefix", INFILL, OWN),
    PLAIN("input_suffix", INFILL, OWN),
    PLAIN("input_extra", INFILL, OWN),
    PLAIN("query", RANKING, OWN),
    PLAIN("documents", RANKING, OWN),
    PLAIN("texts", RANKING, OWN),
    VALUE("top_n", RANKING, INT, 1, 1e9, top_n),
    VALUE("return_documents", RANKING, FLAG, 0, 0, with_texts),
    VALUE("return_text", RANKING, FLAG, 0, 0, with_texts),
    PLAIN("model", ALL | NATIVE | RANKING, OWN),
    PLAIN("user", OPENAI | EMBEDDING | RESPONSE, OWN),
    PLAIN("metadata", TEXT, OWN),
    PLAIN("store", OPENAI | RESPONSE, OWN),
    PLAIN("safety_identifier", OPENAI | RESPONSE, OWN),
    PLAIN("prompt_cache_key", OPENAI | RESPONSE, OWN),
    PLAIN("prompt_cache_retention", OPENAI | RESPONSE, OWN),
    PLAIN("cache_control", MESSAGES, OWN),
    PLAIN("service_tier", TEXT, OWN),
    PLAIN("parallel_tool_calls", OPENAI | RESPONSE, OWN),
    PLAIN("max_tool_calls", RESPONSE, OWN),
    PLAIN("keep_alive", OLLAMA | VECTORS, OWN),
    /* how Ollama is to make use of the machine */
    PLAIN("num_batch", OPTIONS, OWN),
    PLAIN("num_gpu", OPTIONS, OWN),
    PLAIN("main_gpu", OPTIONS, OWN),
    PLAIN("num_thread", OPTIONS, OWN),
    PLAIN("num_keep", OPTIONS, OWN),
    PLAIN("use_mmap", OPTIONS, OWN),
    PLAIN("numa", OPTIONS, OWN),
    PLAIN("tools", CHAT | RESPONSE | MESSAGES | TALK, OWN),
    PLAIN("tool_choice", CHAT | RESPONSE | MESSAGES, OWN),
    PLAIN("chat_template_kwargs", CHAT, OWN),
    PLAIN("reasoning_effort", CHAT, OWN),
    PLAIN("reasoning", RESPONSE, OWN),
    PLAIN("thinking", MESSAGES, OWN),
    PLAIN("think", OLLAMA, OWN),
    REFUSE("tools", COMPLETION | GENERATE, ""),
    REFUSE("tool_choice", COMPLETION, " none auto "),
    REFUSE("functions", OPENAI, ""),
    REFUSE("function_call", OPENAI, " none auto "),
    REFUSE("suffix", OPENAI | GENERATE, ""),
    REFUSE("audio", OPENAI, ""),
    REFUSE("modalities", OPENAI, " text "),
    REFUSE("prediction", OPENAI, ""),
    REFUSE("web_search_options", OPENAI, ""),
    REFUSE("reasoning_effort", COMPLETION, " none "),
    REFUSE("verbosity", OPENAI, " medium "),
    REFUSE("stop_token_ids", TEXT, ""),
    REFUSE("lora", TEXT, ""),
    REFUSE("container", MESSAGES, ""),
    REFUSE("mcp_servers", MESSAGES, ""),
    REFUSE("context_management", MESSAGES | RESPONSE, ""),
    REFUSE("speed", MESSAGES, " standard "),
    REFUSE("images", GENERATE, ""),
    REFUSE("template", GENERATE, ""),
    REFUSE("context", GENERATE, ""),
    REFUSE("shift", OLLAMA, ""),
    REFUSE("truncate", OLLAMA, ""),
    REFUSE("background", RESPONSE, ""),
    REFUSE("conversation", RESPONSE, ""),
    REFUSE("include", RESPONSE, " reasoning.encrypted_content "),
    REFUSE("prompt", RESPONSE, ""),
    REFUSE("truncation", RESPONSE, " disabled "),
    REFUSE("top_logprobs", RESPONSE, ""),
};

const rvi_field *rvi_field_find(unsigned what, const char *name)
{
    for (size_t i = 0; i < RVI_COUNT(fields); i++)
        if ((fields[i].what & what) && !strcmp(fields[i].name, name)) return &fields[i];
    return NULL;
}
