#include "base/toml.h"

#include <string.h>

static char *trim(char *text)
{
    text += strspn(text, " \t\r");
    for (size_t n = strlen(text); n && strchr(" \t\r", text[n - 1]);) text[--n] = 0;
    return text;
}

/* "text" with \" \\ \n \t, 'text' as it is, a number, true or false; a comment may follow. */
static char *read_value(char *at)
{
    char quote = *at, *out = at + 1, *to = at + 1;
    if (quote != '"' && quote != '\'') {
        at[strcspn(at, "#")] = 0;
        at = trim(at);
        return *at && at[strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789.+-_")] == 0 ? at : NULL;
    }
    for (at++; *at && *at != quote; at++) {
        if (quote == '"' && *at == '\\') {
            static const char from[] = "\"\\nt", into[] = "\"\\\n\t";
            const char *known = at[1] ? strchr(from, at[1]) : NULL;
            if (!known) return NULL;
            *to++ = into[known - from];
            at++;
        } else {
            *to++ = *at;
        }
    }
    if (*at != quote) return NULL;
    at = trim(at + 1);
    if (*at && *at != '#') return NULL;
    *to = 0;
    return out;
}

bool rvi_toml_read_line(char *text, rvi_toml_line *out)
{
    *out = (rvi_toml_line){0};
    text = trim(text);
    if (!*text || *text == '#') return true;
    if (*text == '[') {
        size_t n = strcspn(text, "]");
        out->table = true;
        out->name = text + 1;
        if (!text[n]) return false;
        char *rest = trim(text + n + 1);
        text[n] = 0;
        return !*rest || *rest == '#';
    }
    size_t n = strcspn(text, "=");
    if (!text[n]) return false;
    text[n] = 0;
    out->name = trim(text);
    char *value = trim(text + n + 1);
    out->quoted = *value == '"' || *value == '\'';
    out->value = read_value(value);
    return *out->name && out->value;
}
