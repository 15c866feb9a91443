#include "server/server.h"

#include <event2/thread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/interrupt.h"
#include "base/os.h"
#include "base/thread.h"
#include "server/call.h"
#include "server/listen.h"
#include "server/models.h"
#include "server/notify.h"
#include "server/routes.h"

/* Bytes of a request; connections. */
enum { MOST_HEAD = 65536, MOST_LINE = 8192, MOST_CONNECTIONS = 10000, MOST_TEXTS = 1 << 20 };
enum { OTHER_FILES = 1024 }; /* models, stores, logs */
enum { FORCED = 130 };

typedef struct server {
    const rvi_server_options *o;
    rvi_server s;
    rvi_access access;
    rvi_listener listener;
    struct event_base *base;
    struct event *wake, *tick, *term, *interrupt, *hangup;
    double deadline; /* when what is still under way is given up; 0: not ending */
    bool opened;     /* or it could not be: st */
    rv_status st;
    rv_error err;
    /* of the opening */
    rvi_work opening;
    rv_runtime *rt;
} server;

/* ---- messages from other threads ---- */

static void wake_up(void *ctx)
{
    server *v = ctx;
    event_active(v->wake, EV_READ, 0);
}

static void on_wake(evutil_socket_t fd, short what, void *ctx)
{
    server *v = ctx;
    rv_batch *b = NULL;
    rv_error err;
    (void)fd;
    (void)what;
    rvi_worker_call_done(v->s.worker);
    rvi_worker_call_done(v->s.loader);
    rvi_worker_call_done(v->s.reader);
    for (int i = 0; i < v->o->n_models; i++) {
        rvi_serving *s = &v->s.models[i];
        /* with the last event of the last request nobody holds the model any more */
        while (s->service && !rv_service_drain(s->service, 0, &b, &err) && b) {
            for (size_t k = 0; k < b->n; k++) {
                rvi_recipient *r = b->events[k].user;
                r->event(r, &b->events[k]);
            }
            rv_free(b);
        }
    }
}

/* ---- opening the models ---- */

static void find_models(rvi_work *w)
{
    server *v = (server *)(void *)((char *)w - offsetof(server, opening));
    rvi_served *all = rvi_alloc_array((size_t)v->o->n_models, sizeof *all);
    v->st = all ? RV_OK : rvi_nomem(&v->err, "models");
    if (all) memset(all, 0, (size_t)v->o->n_models * sizeof *all);
    if (all) v->st = v->o->open(v->o->ctx, &v->rt, all, &v->err);
    for (int i = 0; !v->st && i < v->o->n_models; i++) {
        rvi_served *one = &v->s.models[i].served;
        *one = all[i];
        one->open.size = sizeof one->open;
        one->service.size = sizeof one->service;
        one->service.wake = wake_up;
        one->service.wake_ctx = v;
    }
    rvi_free(all);
}

static void first_loaded(void *ctx, rv_status st, const rv_error *err)
{
    server *v = ctx;
    v->opened = true;
    if (atomic_load(&v->s.ending)) return;
    if (st) {
        v->st = st;
        v->err = *err;
        (void)event_base_loopbreak(v->base);
        return;
    }
    rvi_notify(v->o->notify, "READY=1");
}

static void models_found(rvi_work *w)
{
    server *v = (server *)(void *)((char *)w - offsetof(server, opening));
    if (!v->st && !v->rt) return; /* it never ran */
    if (!v->st) v->st = rvi_servings_open(&v->s, v->rt, &v->err);
    if (!v->st && !rvi_servings_begin(&v->s, first_loaded, v)) v->st = rvi_nomem(&v->err, "model");
    if (v->st) first_loaded(v, v->st, &v->err);
}

/* ---- the end ---- */

static void end_if_idle(server *v)
{
    bool idle = !v->s.conns.n;
    for (int i = 0; i < v->o->n_models; i++)
        idle = idle && !v->s.models[i].calls && !v->s.models[i].others;
    if (v->deadline > 0 && (idle || rvi_os_seconds() > v->deadline))
        (void)event_base_loopbreak(v->base);
}

static void on_signal(evutil_socket_t number, short what, void *ctx)
{
    server *v = ctx;
    (void)number;
    (void)what;
    if (v->deadline > 0) rvi_interrupt_leave(FORCED, "");
    v->deadline = rvi_os_seconds() + v->o->drain_seconds;
    rvi_notify(v->o->notify, "STOPPING=1");
    rvi_listen_close(&v->listener); /* who comes now is to go elsewhere, not to wait in vain */
    rvi_conns_drain(&v->s.conns);
    end_if_idle(v);
}

/* ---- who is let in ---- */

static rv_status read_keys(const rvi_server_options *o, rvi_keys *out, rv_error *err)
{
    rv_status st = RV_OK;
    *out = (rvi_keys){0};
    if (o->key) st = rvi_keys_add(out, o->key, err);
    if (!st && o->keys) st = rvi_keys_load(out, o->keys, err);
    if (!st && o->keys && !out->n)
        st = rvi_error(err, RV_E_CONFIG, "--keys %s: there is no key in it", o->keys);
    if (st) rvi_keys_deinit(out);
    return st;
}

static rv_status read_tls(const rvi_server_options *o, rvi_tls **out, rv_error *err)
{
    *out = NULL;
    return o->tls_cert ? rvi_tls_new(out, o->tls_cert, o->tls_key, err) : RV_OK;
}

/* Reads the files of keys and certificates again; what cannot be read leaves things as they are. */
static void on_hangup(evutil_socket_t number, short what, void *ctx)
{
    server *v = ctx;
    rvi_keys keys;
    rvi_tls *tls;
    rv_error err = {0};
    (void)number;
    (void)what;
    if (!read_keys(v->o, &keys, &err)) {
        rvi_keys_carry_over(&keys, &v->access.keys);
        rvi_keys_deinit(&v->access.keys);
        v->access.keys = keys;
    }
    if (!err.text[0] && !read_tls(v->o, &tls, &err)) {
        rvi_tls_free(&v->s.conns.tls);
        v->s.conns.tls = tls;
    }
    if (err.text[0]) fprintf(stderr, "ruvllm: warning: nothing was read again: %s\n", err.text);
}

static void on_tick(evutil_socket_t fd, short what, void *ctx)
{
    server *v = ctx;
    (void)fd;
    (void)what;
    rvi_conns_tick(&v->s.conns);
    rvi_servings_tick(&v->s);
    rvi_kept_follow(&v->s.kept);
    if (!(v->deadline > 0)) (void)evconnlistener_enable(v->listener.l);
    end_if_idle(v);
}

/* ---- connections ---- */

static void on_accept(struct evconnlistener *l, evutil_socket_t fd, struct sockaddr *a, int len,
                      void *ctx)
{
    server *v = ctx;
    (void)l;
    (void)a;
    (void)len;
    rvi_listen_no_delay(fd);
    rvi_conn_accept(&v->s.conns, fd);
}

/* No descriptors are left: the next tick tries again. */
static void on_accept_error(struct evconnlistener *l, void *ctx)
{
    (void)ctx;
    (void)evconnlistener_disable(l);
}

static void on_request(void *ctx, rvi_conn *c)
{
    server *v = ctx;
    rvi_routes_handle(&v->s, &v->access, c);
}

/* ---- lifetimes ---- */

static rv_status start_events(server *v, rv_error *err)
{
    const struct timeval second = {.tv_sec = 1};
    if (evthread_use_pthreads() || !(v->base = event_base_new()))
        return rvi_error(err, RV_E_IO, "the event loop cannot be made");
    v->wake = event_new(v->base, -1, EV_PERSIST, on_wake, v);
    v->tick = event_new(v->base, -1, EV_PERSIST, on_tick, v);
    v->term = evsignal_new(v->base, SIGTERM, on_signal, v);
    v->interrupt = evsignal_new(v->base, SIGINT, on_signal, v);
    v->hangup = evsignal_new(v->base, SIGHUP, on_hangup, v);
    if (!v->wake || !v->tick || !v->term || !v->interrupt || !v->hangup ||
        event_add(v->tick, &second) || event_add(v->term, NULL) || event_add(v->interrupt, NULL) ||
        event_add(v->hangup, NULL))
        return rvi_nomem(err, "event loop");
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of who writes it */
    rvi_os_allow_files(MOST_CONNECTIONS + OTHER_FILES); /* shells and systemd give 1,024 */
    return RV_OK;
}

static rv_status start_listening(server *v, rv_error *err)
{
    const rvi_server_options *o = v->o;
    rv_status st = read_keys(o, &v->access.keys, err);
    if (!st) st = read_tls(o, &v->s.conns.tls, err);
    if (st) return st;
    if (o->inherited >= 0)
        st = rvi_listen_inherited(&v->listener, v->base, o->inherited, on_accept, v, err);
    else if (o->unix_path)
        st = rvi_listen_unix(&v->listener, v->base, o->unix_path, on_accept, v, err);
    else
        st = rvi_listen_tcp(&v->listener, v->base, o->host, o->port, on_accept, v, err);
    if (st) return st;
    bool keyed = v->access.keys.n;
    if (!v->listener.is_private && !keyed)
        return rvi_error(err, RV_E_CONFIG,
                         "--host %s can be reached by other machines: give --api-key or --keys",
                         o->host);
    evconnlistener_set_error_cb(v->listener.l, on_accept_error);
    v->access.host = o->host;
    v->access.any_host = keyed || o->unix_path;
    v->access.origins = o->origins;
    if (o->tls_cert && !strncmp(v->listener.where.data, "http:", 5)) {
        fprintf(stderr, "ruvllm: listening on https%s\n", v->listener.where.data + 4);
        return RV_OK;
    }
    fprintf(stderr, "ruvllm: listening on %s\n", v->listener.where.data);
    return RV_OK;
}

static void stop(server *v)
{
    rvi_thread_hurry(); /* a process ends with its last thread, and those that learn run idle */
    atomic_store(&v->s.ending, true);
    rvi_conns_close(&v->s.conns);
    rvi_witness_close(v->s.conns.witness);
    rvi_worker_free(v->s.loader);
    rvi_worker_free(v->s.reader);
    rvi_worker_free(v->s.worker);
    if (v->s.models) rvi_servings_close(&v->s);
    rvi_lock_free(v->s.lock);
    rvi_answers_deinit(&v->s.answers);
    rvi_listen_close(&v->listener);
    if (v->o->unix_path && v->opened) (void)remove(v->o->unix_path);
    rvi_keys_deinit(&v->access.keys);
    rvi_tls_free(&v->s.conns.tls);
    struct event *events[] = {v->wake, v->tick, v->term, v->interrupt, v->hangup};
    for (size_t i = 0; i < RVI_COUNT(events); i++)
        if (events[i]) event_free(events[i]);
    if (v->base) event_base_free(v->base);
    libevent_global_shutdown();
}

static rv_status make_models(rvi_server *v, rv_error *err)
{
    const rvi_server_options *o = v->o;
    v->models = rvi_alloc_array((size_t)o->n_models, sizeof *v->models);
    if (!v->models) return rvi_nomem(err, "models");
    for (int i = 0; i < o->n_models; i++) {
        v->models[i] = (rvi_serving){.server = v, .index = i, .name = o->names[i]};
        v->models[i].texts.max = MOST_TEXTS;
        atomic_init(&v->models[i].is_open, false);
    }
    v->models[0].aliases = o->aliases;
    v->models[0].any_model = o->any_model || o->llama.on;
    return RV_OK;
}

static rvi_serving *find_model(void *ctx, const char *name)
{
    return rvi_serving_find(ctx, name);
}

rv_status rvi_server_run(const rvi_server_options *o, rv_error *err)
{
    server *v = rvi_zalloc(sizeof *v);
    if (!v) return rvi_nomem(err, "server");
    v->o = o;
    v->opening = (rvi_work){.run = find_models, .done = models_found};
    v->s.o = o;
    v->s.llama = o->llama;
    v->s.created = (long)time(NULL);
    v->s.kept = (rvi_kept){.writes = o->kept[0],
                           .reads = o->kept[1],
                           .is_limited = o->kept_limited,
                           .answers = &v->s.answers,
                           .worker = &v->s.worker,
                           .find_model = find_model,
                           .ctx = &v->s,
                           .behind = true};
    rvi_kept_follow(&v->s.kept); /* what was forgotten before is of no answer that is given here */
    atomic_init(&v->s.ending, false);
    rv_status st = start_events(v, err);
    v->s.conns = (rvi_conns){
        .base = v->base,
        .limits = {.head = MOST_HEAD, .line = MOST_LINE, .body = (uint64_t)o->max_body << 20},
        .most = MOST_CONNECTIONS,
        .handle = on_request,
        .ctx = v};
    if (!st) st = rvi_lock_new(&v->s.lock, err);
    if (!st) st = make_models(&v->s, err);
    if (!st) st = start_listening(v, err);
    if (!st && o->witness)
        st = rvi_witness_open(&v->s.conns.witness, o->witness, o->witness_store,
                              o->witness_contents, err);
    if (!st) st = rvi_worker_new(&v->s.worker, wake_up, v, err);
    if (!st) st = rvi_worker_new(&v->s.loader, wake_up, v, err);
    if (!st) st = rvi_worker_new(&v->s.reader, wake_up, v, err);
    if (!st) rvi_worker_post(v->s.loader, &v->opening);
    if (!st) (void)event_base_dispatch(v->base);
    stop(v);
    if (!st && v->st) {
        *err = v->err;
        st = v->st;
    }
    rvi_free(v);
    return st;
}
