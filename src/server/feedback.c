/* /v1/feedback and /v1/learning. The learner waits for its turn between two steps and for the disk:
 * its calls are work for the worker, and the client waits for them.
 *
 * A thumb or a score is learned from the gradients of the answer that it judges. The service keeps
 * none, so it goes through the answer again, token for token, as a request beside all others: the
 * same gradients, and of the prompt it computes what it does not know any more. */
#include "server/feedback.h"

#include <stddef.h>
#include <string.h>

#include "base/blob.h"
#include "base/error.h"
#include "base/os.h"
#include "server/openai.h"

typedef enum verdict {
    SCORE,
    THUMB,
    CORRECTION,
    PREFERRED,
    STATUS,
    UNDO,
    UNDO_TO,
    ROLLBACK,
    FORGET,
    EXPORT
} verdict;

typedef struct job {
    rvi_work work;
    rvi_recipient recipient;
    rvi_serving *s;
    rvi_taught *taught;
    rvi_conn *conn; /* NULL: the client has left; what it said counts */
    verdict verdict;
    rvi_said *said;
    double score; /* or 1 and 0 for a thumb */
    rvi_buf text; /* the right or the better answer; what is to be forgotten */
    int generation;
    uint64_t version; /* that is returned to */
    rv_scope scope;
    bool again; /* the chat is to be answered again */
    double since;
    rv_session *session;  /* that stands for the answer which is judged; NULL: not yet */
    bool unheard;         /* the service has to go through that first, */
    uint64_t n_forgotten; /* times that something was forgotten before */
    bool answers;         /* what waits for the service is the chat's new answer */
    bool failed;          /* at the service, that is */
    /* the result */
    rv_status st;
    rv_error err;
    rv_adaptation *adaptation;
    char *json;
    rvi_buf file;   /* that was exported */
    rvi_buf answer; /* what the chat gets now, */
    bool answered;  /* if it could be made */
    uint64_t n_events;
    double seconds;
} job;

static void free_job(job *j)
{
    rvi_said_free(j->said);
    rvi_buf_deinit(&j->text);
    rv_free(j->adaptation);
    rv_free(j->json);
    rv_session_free(&j->session);
    rvi_buf_deinit(&j->answer);
    rvi_buf_deinit(&j->file);
    rvi_taught_leave(j->taught);
    rvi_serving_leave(j->s);
    rvi_free(j);
}

static void on_gone(void *ctx)
{
    ((job *)ctx)->conn = NULL;
}

/* ---- on the worker's thread ---- */

static bool open_session(job *j)
{
    rv_session_options o = {.size = sizeof o, .n_context = j->s->n_context};
    j->st = rv_session_new(&j->session, j->s->model, &o, &j->err);
    return !j->st;
}

static void begin_judging(job *j)
{
    if (!j->said->n_ids)
        j->st = rvi_error(&j->err, RV_E_LEARNING, "that answer has no tokens to judge");
    else
        j->unheard = open_session(j);
    j->n_forgotten = j->taught->n_forgotten;
}

/* Behind the service, which has gone through the answer. */
static void judge(job *j)
{
    rv_learner *l = j->taught->learner;
    if (j->n_forgotten != j->taught->n_forgotten)
        j->st = rvi_error(&j->err, RV_E_NOT_FOUND, "the answer was forgotten meanwhile");
    else if (j->verdict == SCORE)
        j->st = rv_learner_score(l, j->session, j->score, &j->adaptation, &j->err);
    else
        j->st = rv_learner_thumb(l, j->session, j->score > 0, &j->adaptation, &j->err);
}

/* The session becomes one on which what was learned had its part, without computing that again. */
static rv_status end_at_once(job *j)
{
    rv_generate_options o = {.size = sizeof o, .max_tokens = RV_NO_TOKENS};
    rv_answer *a = NULL;
    size_t running = 1;
    rv_status st = rv_session_start(j->session, j->said->ids, 1, &o, &j->err);
    while (!st && running) st = rv_engine_advance(rv_session_engine(j->session), &running, &j->err);
    if (!st) st = rv_session_finish(j->session, &a, &j->err);
    rv_free(a);
    return st;
}

/* On a session that has seen the chat: its last turn may need those before it. Where the answer was
 * a lesson's, as far as it went, that was wrong there, which the session has to know. */
static rv_status ask_learner(job *j)
{
    const rvi_said *said = j->said;
    rv_chat chat = {.size = sizeof chat, .variables = said->chat};
    rv_learn_plan *plan = NULL;
    if (!open_session(j)) return j->st;
    rv_status st = rv_learner_begin(j->taught->learner, j->session, &chat, &plan, &j->err);
    size_t len = strlen(said->text);
    bool spoke = !st && plan->slot && len && !strncmp(plan->answer, said->text, len);
    if (!st && (spoke || plan->read) && plan->event <= said->learned && said->n_ids)
        st = end_at_once(j);
    rv_free(plan);
    return st;
}

static void correct(job *j, const char *text)
{
    rv_learner *l = j->taught->learner;
    j->st = ask_learner(j);
    if (!j->st)
        j->st = rv_learner_teach(l, j->session, NULL, text, j->scope, &j->adaptation, &j->err);
}

/* The adapter of a generation as a file of GGUF, by way of a folder in `beside`. */
static rv_status export_file(rv_learner *l, const char *beside, int generation, rvi_buf *out,
                             rv_error *err)
{
    rvi_buf dir = {0}, path = {0};
    rvi_blob blob = {0};
    rv_status st = rvi_os_temp_dir(&dir, beside, err);
    if (!st && !rvi_buf_printf(&path, "%s/adapter.gguf", dir.data)) st = rvi_nomem(err, "path");
    if (!st) st = rv_learner_export(l, generation, path.data, 0, err);
    if (!st) st = rvi_blob_open(&blob, path.data, err);
    if (!st && !rvi_buf_append(out, (const char *)blob.data, blob.len))
        st = rvi_nomem(err, "adapter");
    rvi_blob_close(&blob);
    if (dir.len) rvi_os_remove_tree(dir.data);
    rvi_buf_deinit(&dir);
    rvi_buf_deinit(&path);
    return st;
}

/* The lesson, and the conversations that are kept: it may stand in them in any wording. */
static void forget(job *j, const char *text)
{
    j->st = rv_learner_forget(j->taught->learner, text, &j->adaptation, &j->err);
    j->taught->n_forgotten++;
    if (!j->st && j->adaptation->applied)
        j->st = rvi_kept_forget(&j->s->server->kept.writes, j->taught->tenant, &j->err);
}

static void run(rvi_work *w)
{
    job *j = (job *)w;
    const char *text = j->text.len ? j->text.data : "";
    j->st = rvi_taught_open(&j->s->teaching, j->taught, &j->err);
    rv_learner *l = j->taught->learner;
    if (j->st) return;
    switch (j->verdict) {
    case SCORE:
    case THUMB: j->session ? judge(j) : begin_judging(j); break;
    case CORRECTION: correct(j, text); break;
    case PREFERRED:
        j->st =
            rv_learner_prefer(l, j->said->question, text, j->said->text, &j->adaptation, &j->err);
        break;
    case STATUS:
        j->st = rv_learner_status(l, &j->json, &j->err);
        if (!j->st) j->st = rv_learner_verify_log(l, &j->n_events, &j->err);
        break;
    case UNDO: j->st = rv_learner_undo(l, &j->adaptation, &j->err); break;
    case UNDO_TO: j->st = rv_learner_undo_to(l, j->version, &j->adaptation, &j->err); break;
    case ROLLBACK: j->st = rv_learner_rollback(l, j->generation, &j->adaptation, &j->err); break;
    case FORGET: forget(j, text); break;
    case EXPORT: j->st = export_file(l, j->s->scratch, j->generation, &j->file, &j->err); break;
    }
    j->seconds = rvi_os_seconds() - j->since;
}

/* ---- the answer ---- */

static void put_adaptation(const job *j, rvi_buf *out)
{
    static const char *const loops[] = {"instant", "background", "deep"};
    const rv_adaptation *a = j->adaptation;
    rvi_buf_printf(out, "{\"object\":\"%s\"", j->said ? "feedback" : "learning");
    if (j->said) {
        rvi_put_member(out, "response_id", j->said->id);
        rvi_buf_printf(out, ",\"choice_index\":%d", j->said->choice);
    }
    rvi_put_member(out, "model", j->s->name);
    rvi_put_member(out, "system_fingerprint", j->s->fingerprint);
    rvi_put_member(out, "tenant", *j->taught->tenant ? j->taught->tenant : NULL);
    rvi_buf_printf(out, ",\"applied\":%s", a->applied ? "true" : "false");
    rvi_put_member(out, "loop", loops[a->loop]);
    rvi_put_member(out, "notes", a->notes);
    rvi_put_number(out, "latency_us", a->latency_us);
    rvi_put_number(out, "forward_us", a->forward_us);
    rvi_put_number(out, "seconds", j->seconds);
    rvi_put_number(out, "quality_delta", a->quality_delta);
    rvi_buf_printf(out, ",\"generation\":%d,\"event\":%llu,\"learned_version\":%llu", a->generation,
                   (unsigned long long)a->event, (unsigned long long)rvi_taught_version(j->taught));
    const char *answer = j->answer.len ? j->answer.data : "";
    if (j->again) rvi_put_member(out, "answer", j->answered ? answer : NULL);
    rvi_buf_putc(out, '}');
}

static void reply(job *j)
{
    rvi_buf out = {0};
    rvi_problem p;
    if (j->adaptation) j->s->server->n_feedback++;
    if (j->adaptation && j->adaptation->applied && j->verdict == FORGET) {
        rvi_answers_forget_all(&j->s->server->answers, j->taught->tenant);
        rvi_kept_follow(&j->s->server->kept); /* it is known: what is said from now on stays */
    }
    if (j->conn) j->conn->gone = NULL;
    if (j->conn && (j->st || (!j->adaptation && !j->json && !j->file.len))) {
        (void)rvi_problem_from(&p, j->st ? j->st : RV_E_STATE, &j->err);
        rvi_dialect_refuse(&rvi_openai, j->conn, &p);
    } else if (j->conn && j->file.len) {
        rvi_conn_reply(j->conn, 200, "application/octet-stream", j->file.data, j->file.len);
    } else if (j->conn) {
        if (j->json)
            rvi_buf_printf(&out, "{\"object\":\"learning\",\"learned_version\":%llu,%s",
                           (unsigned long long)rvi_taught_version(j->taught), j->json + 1);
        else
            put_adaptation(j, &out);
        rvi_reply_json(&rvi_openai, j->conn, &out);
    }
    free_job(j);
}

/* ---- at the service ---- */

static void leave_service(job *j)
{
    rvi_recipient **at = &j->s->others;
    while (*at != &j->recipient) at = &(*at)->next;
    *at = j->recipient.next;
}

static job *job_of(rvi_recipient *r)
{
    return (job *)(void *)((char *)r - offsetof(job, recipient));
}

static void drop(rvi_recipient *r)
{
    free_job(job_of(r));
}

static void on_event(rvi_recipient *r, const rv_service_event *e)
{
    job *j = job_of(r);
    if (e->kind == RV_SERVICE_TOKEN && j->answers) rvi_buf_append(&j->answer, e->text, e->text_len);
    if (e->kind == RV_SERVICE_DONE) {
        j->failed = e->finish == RV_FINISH_ERROR || e->finish == RV_FINISH_CANCELLED;
        if (j->failed && !j->answers)
            j->st = e->finish == RV_FINISH_ERROR
                        ? rvi_error(&j->err, e->status, "%s", e->error)
                        : rvi_error(&j->err, RV_E_CANCELLED, "the server is shutting down");
    }
    if (e->kind != RV_SERVICE_END) return;
    leave_service(j);
    j->unheard = false;
    j->answered = j->answers && !j->failed && !j->answer.failed;
    if (j->answers || j->failed)
        reply(j);
    else
        rvi_worker_post(j->s->server->worker, &j->work);
}

/* The chat again, with its answer, or for a new one. False: it was not taken. */
static bool submit(job *j, bool answers)
{
    enum { LEAST = 256 }; /* tokens that it may have, however short the first answer was */
    const rvi_said *said = j->said;
    rv_chat chat = {.size = sizeof chat, .variables = said->chat};
    rv_given given = {
        .ids = said->ids, .n_ids = said->n_ids, .text = said->text, .version = said->learned};
    rv_sampling sampling = {.size = sizeof sampling,
                            .greedy = said->temperature <= 0,
                            .temperature = said->temperature,
                            .repetition_penalty = 1};
    rv_generate_options g = {.size = sizeof g,
                             .sampling = &sampling,
                             .max_tokens = (int)RVI_MAX(said->n_ids, (size_t)LEAST)};
    rv_request r = {.size = sizeof r,
                    .chat = &chat,
                    .generate = &g,
                    .learner = j->taught->learner,
                    .tenant = said->tenant,
                    .user = &j->recipient};
    uint64_t id;
    if (!answers) {
        r.judged = j->session;
        r.given = &given;
    }
    j->answers = answers;
    j->recipient = (rvi_recipient){.event = on_event, .drop = drop};
    rv_error err = {0};
    rv_status st = atomic_load(&j->s->server->ending)
                       ? rvi_error(&err, RV_E_CANCELLED, "the server is shutting down")
                       : rv_service_submit(j->s->service, &r, &id, &err);
    if (!st) {
        j->recipient.next = j->s->others;
        j->s->others = &j->recipient;
    } else if (!answers) {
        j->st = st;
        j->err = err;
    }
    return !st;
}

/* On to the service, or to the client: who has left needs no new answer. */
static void done(rvi_work *w)
{
    job *j = (job *)w;
    rvi_taught_opened(j->taught);
    bool goes = !j->st && j->unheard && submit(j, false);
    if (!goes) goes = !j->st && j->adaptation && j->again && j->conn && submit(j, true);
    if (!goes) reply(j);
}

/* ---- the request ---- */

static bool read_rating(job *j, const rvi_json *v, rvi_problem *p)
{
    bool up = rvi_json_is_string(v, "up") || rvi_json_int(v, 0) == 1;
    bool down = rvi_json_is_string(v, "down") || rvi_json_int(v, 0) == -1;
    j->verdict = THUMB;
    j->score = up;
    return up || down ||
           rvi_problem_set(p, 400, "invalid_value", "rating", "rating must be 1 or -1");
}

static bool read_score(job *j, const rvi_json *v, rvi_problem *p)
{
    j->verdict = SCORE;
    j->score = rvi_json_number(v, -1);
    return (j->score >= 0 && j->score <= 1) ||
           rvi_problem_set(p, 400, "value_out_of_range", "score", "score must be a number, 0 to 1");
}

static bool read_text(job *j, const rvi_json *v, verdict kind, const char *name, rvi_problem *p)
{
    j->verdict = kind;
    if (!rvi_json_is(v, RVI_JSON_STRING) || !v->as.string.len)
        return rvi_problem_set(p, 400, "invalid_type", name, "%s must be a text", name);
    if (strlen(v->as.string.data) != v->as.string.len)
        return rvi_problem_set(p, 400, "invalid_value", name, "%s has a NUL character", name);
    return rvi_buf_append(&j->text, v->as.string.data, v->as.string.len) ||
           rvi_problem_set(p, 503, NULL, NULL, "out of memory");
}

static bool read_scope(job *j, const rvi_json *v, rvi_problem *p)
{
    j->scope = RV_SCOPE_TOPIC;
    if (!v || rvi_json_is(v, RVI_JSON_NULL)) return true;
    for (int i = RV_SCOPE_TOPIC; i <= RV_SCOPE_EXACT; i++)
        if (rvi_json_is_string(v, rv_scope_name((rv_scope)i))) {
            j->scope = (rv_scope)i;
            return true;
        }
    return rvi_problem_set(p, 400, "invalid_value", "scope", "scope must be topic or exact");
}

static bool read_verdict(job *j, const rvi_json *body, rvi_problem *p)
{
    static const char *const names[] = {"rating", "score", "correction", "preferred"};
    const rvi_json *given = NULL;
    int which = -1;
    for (int i = 0; i < (int)RVI_COUNT(names); i++) {
        const rvi_json *v = rvi_json_get(body, names[i]);
        if (!v || rvi_json_is(v, RVI_JSON_NULL)) continue;
        if (given)
            return rvi_problem_set(p, 400, "invalid_value", names[i],
                                   "give one of rating, score, correction and preferred");
        given = v;
        which = i;
    }
    switch (which) {
    case 0: return read_rating(j, given, p);
    case 1: return read_score(j, given, p);
    case 2:
        return read_text(j, given, CORRECTION, names[2], p) &&
               read_scope(j, rvi_json_get(body, "scope"), p);
    case 3: return read_text(j, given, PREFERRED, names[3], p);
    default:
        return rvi_problem_set(p, 400, "missing_field", NULL,
                               "give one of rating, score, correction and preferred");
    }
}

static bool read_again(job *j, const rvi_json *v, rvi_problem *p)
{
    j->again = rvi_json_bool(v, false);
    return !v || rvi_json_is(v, RVI_JSON_NULL) || rvi_json_is(v, RVI_JSON_BOOL) ||
           rvi_problem_set(p, 400, "invalid_type", "answer", "answer must be true or false");
}

static bool find_answer(job *j, const rvi_json *body, rvi_problem *p)
{
    const rvi_json *id = rvi_json_get(body, "response_id");
    const rvi_json *choice = rvi_json_get(body, "choice_index");
    if (!id) id = rvi_json_get(body, "completion_id");
    if (!rvi_json_is(id, RVI_JSON_STRING))
        return rvi_problem_set(p, 400, "missing_field", "response_id",
                               "response_id must be the id of an answer");
    if (choice && !rvi_json_is(choice, RVI_JSON_INT) && !rvi_json_is(choice, RVI_JSON_NULL))
        return rvi_problem_set(p, 400, "invalid_type", "choice_index",
                               "choice_index must be a whole number");
    int64_t n = rvi_json_int(choice, 0);
    const rvi_said *said = n >= 0 && n < RVI_WISH_CHOICES
                               ? rvi_kept_find(&j->s->server->kept, j->conn->key->name,
                                               rvi_json_string(id, ""), (int)n)
                               : NULL;
    if (said && said->by != j->s)
        return rvi_problem_set(p, 404, "response_not_found", "response_id",
                               "the model that gave this answer is not served any more");
    if (!said)
        return rvi_problem_set(
            p, 404, "response_not_found", "response_id",
            "there is no answer with this id, or it is not kept any more: it was "
            "given more than a day or very many answers ago, with \"store\": "
            "false before a restart, or conversations were forgotten since");
    j->said = rvi_said_copy(said);
    return j->said || rvi_problem_set(p, 503, NULL, NULL, "out of memory");
}

/* What a key may do with what was taught for all is not what it may do with its own. */
static bool may(const rvi_conn *c, const rvi_taught *taught, verdict v, rvi_problem *p)
{
    bool changes = v == UNDO || v == ROLLBACK || v == FORGET || v == EXPORT;
    return !changes || *taught->tenant || (c->key->may & RVI_MAY_ADMIN) ||
           rvi_problem_set(p, 403, "insufficient_scope", NULL,
                           "what was taught is for all: this needs the scope admin");
}

static job *new_job(rvi_serving *s, rvi_conn *c, verdict v, rvi_problem *p)
{
    rvi_taught *taught = NULL;
    job *j = NULL;
    if (!rvi_taught_take(&s->teaching, c->key, s->server->worker, &taught))
        (void)rvi_problem_set(p, 503, NULL, NULL, "out of memory");
    else if (!taught)
        (void)rvi_problem_set(p, 501, "learning_off", NULL,
                              "nothing is learned here: the server has no place for it, its model "
                              "cannot be taught, or the key says so");
    else if (may(c, taught, v, p) && !(j = rvi_zalloc(sizeof *j)))
        (void)rvi_problem_set(p, 503, NULL, NULL, "out of memory");
    if (!j) {
        rvi_taught_leave(taught);
        return NULL;
    }
    rvi_serving_stay(s);
    *j = (job){.work = {.run = run, .done = done}, .s = s, .taught = taught, .conn = c};
    j->verdict = v;
    j->since = rvi_os_seconds();
    return j;
}

/* Posts the job, or says what is wrong. */
static void post(rvi_conn *c, job *j, bool ok, const rvi_problem *p)
{
    if (ok) {
        c->gone = on_gone;
        c->gone_ctx = j;
        rvi_worker_post(j->s->server->worker, &j->work);
    } else {
        rvi_dialect_refuse(&rvi_openai, c, p);
        if (j) free_job(j);
    }
}

static bool read_number(job *j, const rvi_json *body, bool needed, rvi_problem *p)
{
    const rvi_json *v = rvi_json_get(body, "generation");
    int64_t n = rvi_json_int(v, v && !rvi_json_is(v, RVI_JSON_NULL) ? -1 : needed ? -1 : 0);
    j->generation = (int)n;
    return (n >= 0 && n <= INT32_MAX) ||
           rvi_problem_set(p, 400, "invalid_type", "generation",
                           "generation must be a whole number, 0 or more");
}

/* To a generation of adapters, or to what was learned when an answer was given. */
static bool read_rollback(job *j, const rvi_json *body, rvi_problem *p)
{
    const rvi_json *v = rvi_json_get(body, "learned_version");
    if (!v || rvi_json_is(v, RVI_JSON_NULL)) return read_number(j, body, true, p);
    int64_t n = rvi_json_int(v, -1);
    j->verdict = UNDO_TO;
    j->version = (uint64_t)n;
    if (rvi_json_get(body, "generation"))
        return rvi_problem_set(p, 400, "invalid_value", "generation",
                               "give one of generation and learned_version");
    return n >= 0 || rvi_problem_set(p, 400, "invalid_type", "learned_version",
                                     "learned_version must be a whole number, 0 or more");
}

static bool read_body(job *j, const rvi_json *body, rvi_problem *p)
{
    switch (j->verdict) {
    case STATUS:
    case UNDO:
    case UNDO_TO: return true;
    case ROLLBACK: return read_rollback(j, body, p);
    case EXPORT: return read_number(j, body, false, p);
    case FORGET: return read_text(j, rvi_json_get(body, "text"), FORGET, "text", p);
    default:
        return read_verdict(j, body, p) && read_again(j, rvi_json_get(body, "answer"), p) &&
               find_answer(j, body, p);
    }
}

static void handle(rvi_serving *s, rvi_conn *c, verdict v)
{
    enum { MOST_ARENA = 64 << 20 };
    rvi_arena arena = {.max = MOST_ARENA};
    rvi_problem p = {0};
    const rvi_json *body = NULL;
    bool bare = v == STATUS || (v == UNDO && !c->in.body.len);
    job *j = new_job(s, c, v, &p);
    bool ok =
        j && (bare || rvi_wish_body(&body, &c->in.body, &arena, &p)) && read_body(j, body, &p);
    rvi_arena_deinit(&arena);
    post(c, j, ok, &p);
}

void rvi_server_feedback(rvi_serving *s, rvi_conn *c)
{
    handle(s, c, SCORE);
}

void rvi_server_learning(rvi_serving *s, rvi_conn *c)
{
    handle(s, c, STATUS);
}

void rvi_server_undo(rvi_serving *s, rvi_conn *c)
{
    handle(s, c, UNDO);
}

void rvi_server_rollback(rvi_serving *s, rvi_conn *c)
{
    handle(s, c, ROLLBACK);
}

void rvi_server_forget(rvi_serving *s, rvi_conn *c)
{
    handle(s, c, FORGET);
}

void rvi_server_export(rvi_serving *s, rvi_conn *c)
{
    handle(s, c, EXPORT);
}
