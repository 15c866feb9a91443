/* chat.h - renders a conversation as the prompt text a model was trained on, with its chat
 * template.
 *
 * The template is the model's own where it stores one, otherwise one of a few layouts of well-known
 * families, chosen by the special tokens of the vocabulary and by the architecture. rvi_chat_new
 * finds out what a template accepts by rendering small conversations with it. An rvi_chat is
 * immutable: any number of threads may render. */
#ifndef RVI_TEMPLATE_CHAT_H
#define RVI_TEMPLATE_CHAT_H

#include <stdbool.h>

#include "template/jinja.h"

typedef struct rvi_chat rvi_chat;

/* All pointers are only read during rvi_chat_new. */
typedef struct rvi_chat_source {
    const char *template_text; /* NULL: the model stores none */
    size_t template_len;
    const char *arch; /* general.architecture or model_type, or NULL */
    bool (*has_token)(void *ctx,
                      const char *text); /* is text one token of the vocabulary? may be NULL */
    void *ctx;
    const char *bos_token, *eos_token, *unk_token, *pad_token; /* texts; NULL: the model has none */
} rvi_chat_source;

rv_status rvi_chat_new(rvi_chat **out, const rvi_chat_source *src, rv_error *err) RVI_MUST_CHECK;
void rvi_chat_free(rvi_chat *c); /* accepts NULL */

/* "stored", or the name of the built-in layout: chatml, llama3, gemma, phi3, zephyr, mistral,
 * llama2, plain. */
const char *rvi_chat_name(const rvi_chat *c);

/* conversation: {"messages": [{"role": ..., "content": ...}, ...], "tools": [...],
 * "add_generation_prompt": bool, and any other variable}. The template sees tools and documents as
 * None and add_generation_prompt as false where they are absent, then bos_token and the like, then
 * every member of the object. Contents that are lists of text parts are joined, with a newline
 * between two parts, if the template accepts no lists in that role; a string becomes a list if the
 * template accepts only lists. A part that is not text is an error that names its type. */
rv_status rvi_chat_render(const rvi_chat *c, const rvi_json *conversation,
                          const rvi_template_now *now, rvi_buf *out, rv_error *err) RVI_MUST_CHECK;

/* The same, and the bytes of out that come from the conversation are added to user (see
 * rvi_template_render_marked): give both to rvi_tokenizer_encode_marked, so that text of users
 * cannot become control tokens. The template's own text and the model's bos_token and the like are
 * not among them. */
rv_status rvi_chat_render_marked(const rvi_chat *c, const rvi_json *conversation,
                                 const rvi_template_now *now, rvi_buf *out, rvi_text_spans *user,
                                 rv_error *err) RVI_MUST_CHECK;

/* The text that follows the content of an assistant's message; it begins with the token that ends a
 * turn. Empty (*len 0) if the template has none. Owned by c. */
const char *rvi_chat_turn_end(const rvi_chat *c, size_t *len);

#endif
