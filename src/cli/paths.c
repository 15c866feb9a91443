/* Where the program keeps files: by option, by RUVLLM_*_DIR, by XDG_*_HOME, below the home
 * directory. If none of them is set, commands that need a directory report an error; files are
 * never put into the current directory. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/cli.h"

/* Bytes of a directory. SQLite takes paths of up to 512, and the model's digest, a name and a file
 * follow; the system takes up to 4,096. */
enum { MAX_STATE = 320, MAX_CACHE = 3600 };

static const char *set(const char *variable)
{
    const char *value = getenv(variable);
    return value && *value ? value : NULL;
}

/* HOME, as the XDG specification has it; nothing is appended where it is not set. */
static bool put_home(rvi_buf *out)
{
    const char *home = set("HOME");
    return home && home[0] == '/' && rvi_buf_puts(out, home);
}

/* VARIABLE/ruvllm, or HOME/below/ruvllm. The XDG specification has relative values ignored. */
static const char *place(rvi_buf *out, const char *variable, const char *below)
{
    const char *given = set(variable);
    bool known = given && given[0] == '/' ? rvi_buf_puts(out, given)
                                          : put_home(out) && rvi_buf_puts(out, below);
    return known && rvi_buf_puts(out, "/ruvllm") ? out->data : NULL;
}

void cli_paths_init(cli *c)
{
    c->cache_dir = set("RUVLLM_CACHE_DIR");
    c->state_dir = set("RUVLLM_STATE_DIR");
    c->store = set("RUVLLM_STORE");
    if (!c->cache_dir) c->cache_dir = place(&c->paths[0], "XDG_CACHE_HOME", "/.cache");
    if (!c->state_dir)
        c->default_state = c->state_dir = place(&c->paths[1], "XDG_DATA_HOME", "/.local/share");
}

void cli_paths_deinit(cli *c)
{
    for (size_t i = 0; i < RVI_COUNT(c->paths); i++) rvi_buf_deinit(&c->paths[i]);
}

static rv_status check(const char *dir, const char *what, const char *option, size_t most,
                       rv_error *err)
{
    if (!dir)
        return rvi_error(err, RV_E_CONFIG,
                         "no directory for %s: HOME is not set to an absolute path; set it, or "
                         "give %s",
                         what, option);
    size_t len = strlen(dir);
    if (len > most)
        return rvi_error(err, RV_E_CONFIG,
                         "the directory for %s is too long: %zu bytes, more than %zu (%.40s"
                         "...); %s names another",
                         what, len, most, dir, option);
    return RV_OK;
}

rv_status cli_cache(const cli *c, const char **dir, rv_error *err)
{
    *dir = c->cache_dir;
    return check(*dir, "models", "--cache-dir", MAX_CACHE, err);
}

rv_status cli_state(const cli *c, const char **dir, rv_error *err)
{
    *dir = c->state_dir;
    return check(*dir, "what is learned", "--state-dir", MAX_STATE, err);
}

const char *cli_history_dir(cli *c)
{
    if (c->state_dir != c->default_state) return c->state_dir; /* the user named it */
    return place(&c->paths[2], "XDG_STATE_HOME", "/.local/state");
}

bool cli_is_database(const char *text)
{
    return !strncmp(text, "postgres://", 11) || !strncmp(text, "postgresql://", 13);
}
