#include "template/chat.h"

#include <string.h>

enum { N_TOKENS = 4, MAX_TURN_END = 256, MAX_RENDER_MEMORY = 64 << 20 };

/* A probe has one or two short messages: templates in use take some thousand steps and less than a
 * megabyte for it. One that takes far more counts as refusing it, so that opening a hostile file
 * ends soon. */
static const rvi_template_limits probe_limits = {
    .max_steps = 500000, .max_output = 1 << 20, .max_memory = 16 << 20};

typedef enum role { SYSTEM, USER, ASSISTANT, TOOL, N_ROLES } role;

static const char *const role_names[N_ROLES] = {"system", "user", "assistant", "tool"};

struct rvi_chat {
    rvi_template *compiled;
    const char *name;
    bool stored;
    struct {
        const char *key;
        char *text; /* NULL: none */
    } tokens[N_TOKENS];
    bool takes_lists[N_ROLES]; /* a list of text parts as content */
    bool takes_strings[N_ROLES];
    char turn_end[MAX_TURN_END];
    size_t turn_end_len;
};

/* ---- layouts of well-known families ---- */

typedef struct layout {
    const char *name;
    const char *tokens[2]; /* all of them in the vocabulary: chosen. NULL: no further one */
    const char *arches;    /* or one of these architectures, separated by blanks */
    const char *text;
} layout;

/* In the order in which they are tried. System texts go before the first user's where a family has
 * no system turn. */
static const layout layouts[] = {
    {"chatml",
     {"<|im_start|>", NULL},
     "qwen qwen2 qwen2moe qwen3 qwen3moe internlm2",
     "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + (m.content or '') + "
     "'<|im_end|>\\n' }}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"},
    {"llama3",
     {"<|start_header_id|>", NULL},
     "",
     "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m.role + "
     "'<|end_header_id|>\\n\\n' + "
     "(m.content or '')|trim + '<|eot_id|>' }}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% "
     "endif %}"},
    {"gemma",
     {"<start_of_turn>", NULL},
     "gemma gemma2 gemma3 gemma3_text",
     "{{ bos_token }}{% set ns = namespace(system='') %}{% for m in messages %}{% if m.role == "
     "'system' %}"
     "{% set ns.system = ns.system + (m.content or '')|trim + '\\n\\n' %}{% else %}"
     "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' }}"
     "{% if m.role == 'user' %}{{ ns.system }}{% set ns.system = '' %}{% endif %}"
     "{{ (m.content or '')|trim + '<end_of_turn>\\n' }}{% endif %}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"},
    {"phi3",
     {"<|assistant|>", "<|end|>"},
     "phi3",
     "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + (m.content or '') + '<|end|>\\n' }}{% "
     "endfor %}"
     "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"},
    {"zephyr",
     {"<|assistant|>", "<|user|>"},
     "stablelm",
     "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + (m.content or '') }}{{ eos_token }}{{ "
     "'\\n' }}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"},
    {"mistral",
     {"[INST]", NULL},
     "mistral mixtral",
     "{{ bos_token }}{% set ns = namespace(system='') %}{% for m in messages %}{% if m.role == "
     "'system' %}"
     "{% set ns.system = ns.system + (m.content or '') + '\\n\\n' %}{% elif m.role == 'assistant' "
     "%}"
     "{{ ' ' + (m.content or '') }}{{ eos_token }}{% else %}"
     "{{ '[INST] ' + ns.system + (m.content or '') + '[/INST]' }}{% set ns.system = '' %}{% endif "
     "%}{% endfor %}"},
    {"llama2",
     {NULL, NULL},
     "llama",
     "{% set ns = namespace(system='') %}{% for m in messages %}{% if m.role == 'system' %}"
     "{% set ns.system = '<<SYS>>\\n' + (m.content or '') + '\\n<</SYS>>\\n\\n' %}{% elif m.role "
     "== 'assistant' %}"
     "{{ ' ' + (m.content or '')|trim + ' ' }}{{ eos_token }}{% else %}{{ bos_token }}"
     "{{ '[INST] ' + ns.system + (m.content or '')|trim + ' [/INST]' }}{% set ns.system = '' %}{% "
     "endif %}{% endfor %}"},
    {"plain",
     {NULL, NULL},
     "",
     "{% for m in messages %}{{ m.role + ': ' + (m.content or '') + '\\n' }}{% endfor %}"
     "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"},
};

static bool has_tokens(const layout *l, const rvi_chat_source *src)
{
    if (!l->tokens[0] || !src->has_token) return false;
    return src->has_token(src->ctx, l->tokens[0]) &&
           (!l->tokens[1] || src->has_token(src->ctx, l->tokens[1]));
}

static bool has_arch(const layout *l, const char *arch)
{
    size_t len = arch ? strlen(arch) : 0;
    for (const char *p = l->arches; len && *p;) {
        size_t n = strcspn(p, " ");
        if (n == len && !memcmp(p, arch, n)) return true;
        p += n + (p[n] == ' ');
    }
    return false;
}

static const layout *choose_layout(const rvi_chat_source *src)
{
    const size_t n = RVI_COUNT(layouts);
    for (size_t i = 0; i < n; i++)
        if (has_tokens(&layouts[i], src)) return &layouts[i];
    for (size_t i = 0; i < n; i++)
        if (has_arch(&layouts[i], src->arch)) return &layouts[i];
    return &layouts[n - 1];
}

/* ---- variables ---- */

static rvi_json json_text(const char *text, size_t len)
{
    return (rvi_json){.kind = RVI_JSON_STRING, .as.string = {.data = text, .len = len}};
}

static void set_member(rvi_json *m, const char *key, rvi_json value)
{
    *m = value;
    m->key = key;
    m->key_len = (uint32_t)strlen(key);
}

static rvi_json *new_object(rvi_arena *arena, size_t max_members, rvi_json **members)
{
    rvi_json *object = rvi_arena_alloc(arena, 1, sizeof *object);
    *members = rvi_arena_alloc(arena, max_members, sizeof **members);
    if (!object || !*members) return NULL;
    *object = (rvi_json){.kind = RVI_JSON_OBJECT, .as.list = {.items = *members}};
    return object;
}

/* What the template sees besides the conversation. In the arena, or NULL. */
static const rvi_json *own_variables(const rvi_chat *c, rvi_arena *arena)
{
    static const rvi_json none = {.kind = RVI_JSON_NULL}, no = {.kind = RVI_JSON_BOOL};
    rvi_json *members, *object = new_object(arena, N_TOKENS + 3, &members);
    size_t n = 0;
    if (!object) return NULL;
    set_member(&members[n++], "tools", none);
    set_member(&members[n++], "documents", none);
    set_member(&members[n++], "add_generation_prompt", no);
    for (size_t i = 0; i < N_TOKENS; i++)
        if (c->tokens[i].text)
            set_member(&members[n++], c->tokens[i].key,
                       json_text(c->tokens[i].text, strlen(c->tokens[i].text)));
    object->as.list.count = n;
    return object;
}

/* The conversation with other messages. In the arena, or NULL. */
static const rvi_json *with_messages(const rvi_json *conversation, const rvi_json *messages,
                                     rvi_arena *arena)
{
    size_t given = rvi_json_count(conversation);
    rvi_json *members, *object = new_object(arena, given + 1, &members);
    if (!object) return NULL;
    for (size_t i = 0; i < given; i++)
        members[i] = *rvi_json_at(conversation, i); /* the last of a name wins */
    set_member(&members[given], "messages", *messages);
    object->as.list.count = given + 1;
    return object;
}

/* ---- contents ---- */

static role role_of(const rvi_json *message)
{
    const rvi_json *name = rvi_json_get(message, "role");
    for (int i = 0; i < N_ROLES; i++)
        if (rvi_json_is_string(name, role_names[i])) return (role)i;
    return USER; /* unknown roles are treated like the one that every template knows */
}

static rv_status check_parts(const rvi_json *content, size_t message, rv_error *err)
{
    for (size_t i = 0; i < rvi_json_count(content); i++) {
        const rvi_json *part = rvi_json_at(content, i), *type = rvi_json_get(part, "type");
        if (!rvi_json_is(part, RVI_JSON_OBJECT) || !rvi_json_is(type, RVI_JSON_STRING))
            return rvi_error(err, RV_E_TOKENIZATION, "messages[%zu].content[%zu] has no type",
                             message, i);
        if (!rvi_json_is_string(type, "text"))
            return rvi_error(
                err, RV_E_TOKENIZATION,
                "messages[%zu].content[%zu]: parts of type '%.60s' are not supported, only text",
                message, i, type->as.string.data);
        if (!rvi_json_is(rvi_json_get(part, "text"), RVI_JSON_STRING))
            return rvi_error(err, RV_E_TOKENIZATION,
                             "messages[%zu].content[%zu].text is not a string", message, i);
    }
    return RV_OK;
}

/* *lists: is there a content that is a list? */
static rv_status check_messages(const rvi_json *messages, bool *lists, rv_error *err)
{
    *lists = false;
    if (!rvi_json_is(messages, RVI_JSON_ARRAY))
        return rvi_error(err, RV_E_TOKENIZATION, "a conversation needs \"messages\", an array");
    for (size_t i = 0; i < rvi_json_count(messages); i++) {
        const rvi_json *m = rvi_json_at(messages, i), *content = rvi_json_get(m, "content");
        if (!rvi_json_is(m, RVI_JSON_OBJECT))
            return rvi_error(err, RV_E_TOKENIZATION, "messages[%zu] is not an object", i);
        if (!rvi_json_is(rvi_json_get(m, "role"), RVI_JSON_STRING))
            return rvi_error(err, RV_E_TOKENIZATION, "messages[%zu].role is not a string", i);
        if (!content || content->kind == RVI_JSON_NULL) continue;
        if (content->kind != RVI_JSON_STRING && content->kind != RVI_JSON_ARRAY)
            return rvi_error(err, RV_E_TOKENIZATION,
                             "messages[%zu].content is neither a string nor a list of parts", i);
        *lists |= content->kind == RVI_JSON_ARRAY;
        rv_status st = check_parts(content, i, err);
        if (st) return st;
    }
    return RV_OK;
}

/* The texts of all parts, a newline between two. */
static bool join_parts(const rvi_json *parts, rvi_arena *arena, rvi_json *out)
{
    size_t len = 0, n = rvi_json_count(parts);
    for (size_t i = 0; i < n; i++)
        len += rvi_json_get(rvi_json_at(parts, i), "text")->as.string.len + 1;
    char *text = rvi_arena_alloc(arena, len + 1, 1), *p = text;
    if (!text) return false;
    for (size_t i = 0; i < n; i++) {
        const rvi_json *piece = rvi_json_get(rvi_json_at(parts, i), "text");
        if (i) *p++ = '\n';
        if (piece->as.string.len) memcpy(p, piece->as.string.data, piece->as.string.len);
        p += piece->as.string.len;
    }
    *out = json_text(text, (size_t)(p - text));
    return true;
}

/* [{"type": "text", "text": content}] */
static bool wrap_text(const rvi_json *content, rvi_arena *arena, rvi_json *out)
{
    rvi_json *members = rvi_arena_alloc(arena, 2, sizeof *members),
             *part = rvi_arena_alloc(arena, 1, sizeof *part);
    if (!members || !part) return false;
    set_member(&members[0], "type", json_text("text", 4));
    set_member(&members[1], "text", *content);
    *part = (rvi_json){.kind = RVI_JSON_OBJECT, .as.list = {.items = members, .count = 2}};
    *out = (rvi_json){.kind = RVI_JSON_ARRAY, .as.list = {.items = part, .count = 1}};
    return true;
}

/* A copy of a message with another content. */
static bool with_content(const rvi_json *message, const rvi_json *content, rvi_arena *arena,
                         rvi_json *out)
{
    size_t n = rvi_json_count(message);
    rvi_json *members = rvi_arena_alloc(arena, n, sizeof *members);
    if (!members) return false;
    memcpy(members, message->as.list.items, n * sizeof *members);
    for (size_t i = 0; i < n; i++)
        if (members[i].key_len == 7 && !memcmp(members[i].key, "content", 7))
            set_member(&members[i], "content", *content);
    *out = *message;
    out->as.list.items = members;
    return true;
}

/* The messages as the template takes them; join_all: no lists at all. NULL: no memory. */
static const rvi_json *adapt(const rvi_chat *c, const rvi_json *messages, bool join_all,
                             rvi_arena *arena)
{
    size_t n = rvi_json_count(messages);
    rvi_json *list = rvi_arena_alloc(arena, 1, sizeof *list);
    rvi_json *items = n ? rvi_arena_alloc(arena, n, sizeof *items) : NULL;
    if (!list || (n && !items)) return NULL;
    for (size_t i = 0; i < n; i++) {
        const rvi_json *m = rvi_json_at(messages, i), *content = rvi_json_get(m, "content");
        role who = role_of(m);
        rvi_json fresh;
        bool ok = true;
        items[i] = *m;
        if (rvi_json_is(content, RVI_JSON_ARRAY) && (join_all || !c->takes_lists[who]))
            ok = join_parts(content, arena, &fresh) && with_content(m, &fresh, arena, &items[i]);
        else if (rvi_json_is(content, RVI_JSON_STRING) && !join_all && !c->takes_strings[who] &&
                 c->takes_lists[who])
            ok = wrap_text(content, arena, &fresh) && with_content(m, &fresh, arena, &items[i]);
        if (!ok) return NULL;
    }
    *list = (rvi_json){.kind = RVI_JSON_ARRAY, .as.list = {.items = items, .count = n}};
    return list;
}

/* ---- rendering ---- */

static rv_status render(const rvi_chat *c, const rvi_json *conversation, const rvi_json *messages,
                        rvi_arena *arena, const rvi_template_now *now,
                        const rvi_template_limits *limits, rvi_buf *out, rvi_text_spans *user,
                        rv_error *err)
{
    const rvi_json *own = own_variables(c, arena);
    const rvi_json *vars = messages ? with_messages(conversation, messages, arena) : NULL;
    if (!own || !vars) return rvi_nomem(err, "conversation");
    return rvi_template_render_marked(c->compiled, own, vars, now, limits, out, user, err);
}

rv_status rvi_chat_render_marked(const rvi_chat *c, const rvi_json *conversation,
                                 const rvi_template_now *now, rvi_buf *out, rvi_text_spans *user,
                                 rv_error *err)
{
    const rvi_json *messages = rvi_json_get(conversation, "messages");
    bool lists;
    rv_status st = check_messages(messages, &lists, err);
    if (st) return st;
    if (!c->stored && rvi_json_count(rvi_json_get(conversation, "tools")))
        return rvi_error(err, RV_E_TOKENIZATION,
                         "the model has no chat template of its own, so it cannot be given tools");
    rvi_arena arena = {.max = MAX_RENDER_MEMORY};
    st = render(c, conversation, adapt(c, messages, false, &arena), &arena, now, NULL, out, user,
                err);
    if (st == RV_E_TOKENIZATION && lists) { /* maybe lists are taken only in some places */
        rv_error second = {0};
        rv_status again = render(c, conversation, adapt(c, messages, true, &arena), &arena, now,
                                 NULL, out, user, &second);
        if (!again) {
            st = again;
            if (err) *err = second;
        }
    }
    rvi_arena_deinit(&arena);
    return st;
}

rv_status rvi_chat_render(const rvi_chat *c, const rvi_json *conversation,
                          const rvi_template_now *now, rvi_buf *out, rv_error *err)
{
    return rvi_chat_render_marked(c, conversation, now, out, NULL, err);
}

/* ---- what a template can take ---- */

#define PROBE "Zq7Probe"
#define PARTS "[{\"type\":\"text\",\"text\":\"" PROBE "\"}]"
#define CALL                                                                                       \
    "{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":[{\"id\":\"abcdefghi\",\"type\":"    \
    "\"function\","                                                                                \
    "\"function\":{\"name\":\"f\",\"arguments\":{\"x\":1}}}]}"
#define USER_SAYS(text)  "{\"role\":\"user\",\"content\":" text "}"
#define SAYS(role, text) "{\"role\":\"" role "\",\"content\":" text "}"
#define TOOL_SAYS(text)                                                                            \
    "{\"role\":\"tool\",\"name\":\"f\",\"tool_call_id\":\"abcdefghi\",\"content\":" text "}"

/* A conversation per role with the probe as that role's content, once as a string and once as a
 * list. */
static const char *const probes[N_ROLES][2] = {
    {"{\"messages\":[" SAYS("system", "\"" PROBE "\"") "," USER_SAYS("\"u\"") "]}",
     "{\"messages\":[" SAYS("system", PARTS) "," USER_SAYS("\"u\"") "]}"},
    {"{\"messages\":[" USER_SAYS("\"" PROBE "\"") "]}", "{\"messages\":[" USER_SAYS(PARTS) "]}"},
    {"{\"messages\":[" USER_SAYS("\"u\"") "," SAYS("assistant",
                                                   "\"" PROBE "\"") "," USER_SAYS("\"v\"") "]}",
     "{\"messages\":[" USER_SAYS("\"u\"") "," SAYS("assistant", PARTS) "," USER_SAYS("\"v\"") "]}"},
    {"{\"messages\":[" USER_SAYS("\"u\"") "," CALL "," TOOL_SAYS("\"" PROBE "\"") "]}",
     "{\"messages\":[" USER_SAYS("\"u\"") "," CALL "," TOOL_SAYS(PARTS) "]}"},
};

static const char last_turn[] =
    "{\"messages\":[" USER_SAYS("\"u\"") "," SAYS("assistant", "\"" PROBE "\"") "]}";

/* The text of a probe; false with st RV_OK: the template refuses it. */
static bool probe(const rvi_chat *c, const char *json, rvi_buf *out, rv_status *st, rv_error *err)
{
    static const rvi_template_now some_day = {.year = 2024, .month = 1, .day = 1};
    rvi_arena arena = {0};
    const rvi_json *conversation;
    rv_error ignored;
    out->len = 0;
    *st = rvi_json_parse(&conversation, json, strlen(json), &arena, "probe", &ignored);
    if (!*st)
        *st = render(c, conversation, rvi_json_get(conversation, "messages"), &arena, &some_day,
                     &probe_limits, out, NULL, &ignored);
    rvi_arena_deinit(&arena);
    bool rendered = !*st;
    if (*st == RV_E_NOMEM) {
        if (err) *err = ignored;
    } else {
        *st = RV_OK;
    }
    return rendered;
}

/* The last occurrence of the probe text, or NULL. */
static const char *find_probe(const rvi_buf *text)
{
    const char *last = NULL;
    size_t n = strlen(PROBE);
    for (size_t i = 0; i + n <= text->len; i++)
        if (!memcmp(text->data + i, PROBE, n)) last = text->data + i;
    return last;
}

/* The content arrived as itself, not as the Python or JSON text of a list. */
static bool arrived(const rvi_buf *text)
{
    const char *hit = find_probe(text);
    return hit && (hit == text->data || (hit[-1] != '\'' && hit[-1] != '"'));
}

static rv_status examine(rvi_chat *c, rv_error *err)
{
    rvi_buf text = {0};
    rv_status st = RV_OK;
    for (int who = 0; who < N_ROLES && !st; who++) {
        c->takes_strings[who] = probe(c, probes[who][0], &text, &st, err) && arrived(&text);
        if (!st) c->takes_lists[who] = probe(c, probes[who][1], &text, &st, err) && arrived(&text);
    }
    if (!st && probe(c, last_turn, &text, &st, err)) {
        const char *hit = find_probe(&text);
        size_t from = hit ? (size_t)(hit - text.data) + strlen(PROBE) : text.len;
        c->turn_end_len = RVI_MIN(text.len - from, sizeof c->turn_end - 1);
        if (c->turn_end_len) memcpy(c->turn_end, text.data + from, c->turn_end_len);
    }
    rvi_buf_deinit(&text);
    return st;
}

/* ---- the object ---- */

static bool copy_tokens(rvi_chat *c, const rvi_chat_source *src)
{
    const char *const keys[N_TOKENS] = {"bos_token", "eos_token", "unk_token", "pad_token"};
    const char *const texts[N_TOKENS] = {src->bos_token, src->eos_token, src->unk_token,
                                         src->pad_token};
    for (size_t i = 0; i < N_TOKENS; i++) {
        c->tokens[i].key = keys[i];
        if (!texts[i]) continue;
        size_t n = strlen(texts[i]) + 1;
        if (!(c->tokens[i].text = rvi_zalloc(n))) return false;
        memcpy(c->tokens[i].text, texts[i], n);
    }
    return true;
}

rv_status rvi_chat_new(rvi_chat **out, const rvi_chat_source *src, rv_error *err)
{
    *out = NULL;
    rvi_chat *c = rvi_zalloc(sizeof *c);
    if (!c) return rvi_nomem(err, "chat template");
    c->stored = src->template_text != NULL;
    const layout *l = c->stored ? NULL : choose_layout(src);
    c->name = l ? l->name : "stored";
    rv_status st = copy_tokens(c, src) ? RV_OK : rvi_nomem(err, "chat template");
    if (!st && l)
        st = rvi_template_new(&c->compiled, l->text, strlen(l->text), err);
    else if (!st)
        st = rvi_template_new(&c->compiled, src->template_text, src->template_len, err);
    if (!st) st = examine(c, err);
    if (st) {
        rvi_chat_free(c);
        return st;
    }
    *out = c;
    return RV_OK;
}

void rvi_chat_free(rvi_chat *c)
{
    if (!c) return;
    rvi_template_free(c->compiled);
    for (size_t i = 0; i < N_TOKENS; i++) rvi_free(c->tokens[i].text);
    rvi_free(c);
}

const char *rvi_chat_name(const rvi_chat *c)
{
    return c->name;
}

const char *rvi_chat_turn_end(const rvi_chat *c, size_t *len)
{
    *len = c->turn_end_len;
    return c->turn_end;
}
