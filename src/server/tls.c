#include "server/tls.h"

#include <event2/bufferevent_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/mem.h"

struct rvi_tls {
    SSL_CTX *ctx;
};

/* The first thing that OpenSSL has to say. */
static rv_status fail(const char *option, const char *path, rv_error *err)
{
    char text[160] = "unknown error";
    unsigned long code = ERR_get_error();
    if (code) ERR_error_string_n(code, text, sizeof text);
    ERR_clear_error();
    return rvi_error(err, RV_E_CONFIG, "%s %s: %s", option, path, text);
}

/* A key that is encrypted is refused: nobody may be there to be asked. */
static int no_password(char *out, int size, int writes, void *ctx)
{
    (void)out;
    (void)size;
    (void)writes;
    (void)ctx;
    return -1;
}

rv_status rvi_tls_new(rvi_tls **out, const char *cert, const char *key, rv_error *err)
{
    rvi_tls *t = *out = rvi_zalloc(sizeof *t);
    rv_status st = RV_OK;
    if (!t || !(t->ctx = SSL_CTX_new(TLS_server_method()))) st = rvi_nomem(err, "TLS");
    if (!st && !SSL_CTX_set_min_proto_version(t->ctx, TLS1_2_VERSION)) st = fail("TLS", "1.2", err);
    if (!st) SSL_CTX_set_default_passwd_cb(t->ctx, no_password);
    if (!st && SSL_CTX_use_certificate_chain_file(t->ctx, cert) != 1)
        st = fail("--tls-cert", cert, err);
    if (!st && SSL_CTX_use_PrivateKey_file(t->ctx, key, SSL_FILETYPE_PEM) != 1)
        st = fail("--tls-key", key, err);
    if (!st && SSL_CTX_check_private_key(t->ctx) != 1) st = fail("--tls-key", key, err);
    if (st) {
        rvi_tls_free(out);
        return st;
    }
    (void)SSL_CTX_set_mode(t->ctx, SSL_MODE_RELEASE_BUFFERS); /* idle connections are many */
    (void)SSL_CTX_set_options(t->ctx, SSL_OP_NO_RENEGOTIATION);
    return RV_OK;
}

void rvi_tls_free(rvi_tls **t)
{
    if (*t && (*t)->ctx) SSL_CTX_free((*t)->ctx);
    rvi_free(*t);
    *t = NULL;
}

struct bufferevent *rvi_tls_accept(rvi_tls *t, struct event_base *base, evutil_socket_t fd)
{
    SSL *ssl = SSL_new(t->ctx);
    struct bufferevent *bev =
        ssl ? bufferevent_openssl_socket_new(base, fd, ssl, BUFFEREVENT_SSL_ACCEPTING,
                                             BEV_OPT_CLOSE_ON_FREE)
            : NULL;
    if (!bev && ssl) SSL_free(ssl);
    /* A client that leaves without a word has left all the same. */
    if (bev) bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
    return bev;
}
