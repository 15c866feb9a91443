#include "server/listen.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/os.h"

enum { WAITING = 4096 };
enum { FLAGS = LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC };

static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)a;
        return ntohl(in->sin_addr.s_addr) >> 24 == 127;
    }
    const struct sockaddr_in6 *in6 = (const void *)a;
    return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
}

static void put_where(rvi_listener *l)
{
    struct sockaddr_storage a;
    socklen_t len = sizeof a;
    char text[64] = "";
    if (getsockname(evconnlistener_get_fd(l->l), (struct sockaddr *)&a, &len)) return;
    const struct sockaddr_in *in = (const void *)&a;
    const struct sockaddr_in6 *in6 = (const void *)&a;
    bool six = a.ss_family == AF_INET6;
    (void)evutil_inet_ntop(a.ss_family, six ? (const void *)&in6->sin6_addr : &in->sin_addr, text,
                           sizeof text);
    rvi_buf_printf(&l->where, six ? "http://[%s]:%d" : "http://%s:%d", text,
                   ntohs(six ? in6->sin6_port : in->sin_port));
}

rv_status rvi_listen_tcp(rvi_listener *out, struct event_base *base, const char *host, int port,
                         evconnlistener_cb accept, void *ctx, rv_error *err)
{
    struct evutil_addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *list;
    char service[16];
    *out = (rvi_listener){0};
    hints.ai_flags = EVUTIL_AI_PASSIVE;
    snprintf(service, sizeof service, "%d", port);
    int failed = evutil_getaddrinfo(host, service, &hints, &list);
    if (failed)
        return rvi_error(err, RV_E_CONFIG, "--host %s: %s", host, evutil_gai_strerror(failed));
    out->is_private = is_loopback(list->ai_addr);
    out->l = evconnlistener_new_bind(base, accept, ctx, FLAGS | LEV_OPT_REUSEABLE, WAITING,
                                     list->ai_addr, (int)list->ai_addrlen);
    int why = errno;
    evutil_freeaddrinfo(list);
    if (!out->l)
        return rvi_error(err, RV_E_IO, "cannot listen on %s, port %d: %s%s", host, port,
                         strerror(why),
                         why == EADDRINUSE ? "; --port names another, 0 takes a free one" : "");
    put_where(out);
    return RV_OK;
}

/* A socket that nobody listens on is what a process left that was killed. */
static rv_status remove_stale(const char *path, const struct sockaddr_un *a, rv_error *err)
{
    if (rvi_os_stat(path, NULL) == RVI_OS_NONE) return RV_OK;
    if (!rvi_os_is_socket(path))
        return rvi_error(err, RV_E_CONFIG, "--unix %s: there is something that is no socket", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool used = fd >= 0 && !connect(fd, (const struct sockaddr *)a, sizeof *a);
    if (fd >= 0) (void)evutil_closesocket(fd);
    if (used) return rvi_error(err, RV_E_IO, "--unix %s: another process listens there", path);
    if (remove(path)) return rvi_error(err, RV_E_IO, "--unix %s: %s", path, strerror(errno));
    return RV_OK;
}

rv_status rvi_listen_unix(rvi_listener *out, struct event_base *base, const char *path,
                          evconnlistener_cb accept, void *ctx, rv_error *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    *out = (rvi_listener){.is_private = true};
    if (!*path || strlen(path) >= sizeof a.sun_path)
        return rvi_error(err, RV_E_CONFIG, "--unix must have 1 to %zu bytes (got %zu)",
                         sizeof a.sun_path - 1, strlen(path));
    memcpy(a.sun_path, path, strlen(path));
    rv_status st = remove_stale(path, &a, err);
    if (st) return st;
    rvi_os_private_files(true); /* its owner alone may connect */
    out->l =
        evconnlistener_new_bind(base, accept, ctx, FLAGS, WAITING, (struct sockaddr *)&a, sizeof a);
    int why = errno;
    rvi_os_private_files(false);
    if (!out->l) return rvi_error(err, RV_E_IO, "cannot listen on %s: %s", path, strerror(why));
    rvi_buf_puts(&out->where, path);
    return RV_OK;
}

rv_status rvi_listen_inherited(rvi_listener *out, struct event_base *base, evutil_socket_t fd,
                               evconnlistener_cb accept, void *ctx, rv_error *err)
{
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof a;
    *out = (rvi_listener){0};
    if (getsockname(fd, (struct sockaddr *)&a, &len) || evutil_make_socket_nonblocking(fd) ||
        evutil_make_socket_closeonexec(fd) ||
        !(out->l = evconnlistener_new(base, accept, ctx, FLAGS, 0, fd)))
        return rvi_error(err, RV_E_IO, "the socket that was passed cannot be used: %s",
                         strerror(errno));
    bool is_unix = a.ss_family == AF_UNIX;
    out->is_private = is_unix || is_loopback((const struct sockaddr *)&a);
    if (is_unix)
        rvi_buf_puts(&out->where, "the socket that was passed");
    else
        put_where(out);
    return RV_OK;
}

void rvi_listen_close(rvi_listener *l)
{
    if (l->l) evconnlistener_free(l->l);
    l->l = NULL;
    rvi_buf_deinit(&l->where);
}

void rvi_listen_no_delay(evutil_socket_t fd)
{
    int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* fails on unix sockets */
}
