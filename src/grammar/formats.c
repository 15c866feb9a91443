#include "grammar/formats.h"

#include <assert.h>
#include <string.h>

#include "grammar/rx_parse.h"

/* RFC 3339, with the days of each month. The year 0000, which it has, is left out: most
 * readers of dates refuse it. */
#define YEAR   "([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
#define FOURTH "(0[48]|[2468][048]|[13579][26])"
#define LEAP   "([0-9]{2}" FOURTH "|" FOURTH "00)"
#define DATE                                                                                       \
    "(" YEAR "-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"       \
    "|02-(0[1-9]|1[0-9]|2[0-8]))|" LEAP "-02-29)"
#define MINUTE "([01][0-9]|2[0-3]):[0-5][0-9]"
/* leap seconds: those at 23:59:60 UTC, told by the offset only where it is zero */
#define TIME                                                                                       \
    "(" MINUTE ":[0-5][0-9](\\.[0-9]+)?([Zz]|[+-]" MINUTE ")|23:59:60(\\.[0-9]+)?([Zz]|[+-]00:00)" \
    ")"
#define DURATION                                                                                   \
    "P([0-9]+W|([0-9]+D|[0-9]+M([0-9]+D)?|[0-9]+Y([0-9]+M([0-9]+D)?)?)(T" CLOCK ")?|T" CLOCK ")"
#define CLOCK "([0-9]+S|[0-9]+M([0-9]+S)?|[0-9]+H([0-9]+M([0-9]+S)?)?)"

#define OCTET "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4  OCTET "(\\." OCTET "){3}"
#define H16   "[0-9A-Fa-f]{1,4}"
#define LS32  "(" H16 ":" H16 "|" IPV4 ")"
#define IPV6                                                                                       \
    "((" H16 ":){6}" LS32 "|::(" H16 ":){5}" LS32 "|(" H16 ")?::(" H16 ":){4}" LS32 "|((" H16      \
    ":)?" H16 ")?::(" H16 ":){3}" LS32 "|((" H16 ":){0,2}" H16 ")?::(" H16 ":){2}" LS32 "|((" H16  \
    ":){0,3}" H16 ")?::" H16 ":" LS32 "|((" H16 ":){0,4}" H16 ")?::" LS32 "|((" H16 ":){0,5}" H16  \
    ")?::" H16 "|((" H16 ":){0,6}" H16 ")?::)"

/* Labels with hyphens at the third and fourth place are encoded names, whose contents have rules
 * that are no language of this kind: they are left out. */
#define ALNUM "[A-Za-z0-9]"
#define LDH   "[A-Za-z0-9-]"
#define LABEL                                                                                      \
    "(" ALNUM "(" LDH "{0,2}" ALNUM ")?|" ALNUM LDH "(" ALNUM LDH "|-" ALNUM ")" LDH               \
    "{0,58}" ALNUM ")"
#define HOSTNAME LABEL "(\\." LABEL ")*"
#define ATEXT    "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define EMAIL                                                                                      \
    "(" ATEXT "(\\." ATEXT ")*|\"([ !#-\\[\\]-~]|\\\\[ -~])*\")@(" HOSTNAME "|\\[" IPV4            \
    "\\]|\\[IPv6:" IPV6 "\\])"

/* RFC 3986 */
#define PCT      "%[0-9A-Fa-f]{2}"
#define PCHARS   "([A-Za-z0-9._~!$&'()*+,;=:@-]|" PCT ")"
#define NO_COLON "([A-Za-z0-9._~!$&'()*+,;=@-]|" PCT ")"
#define USER     "([A-Za-z0-9._~!$&'()*+,;=:-]|" PCT ")*"
#define HOST                                                                                       \
    "(\\[(" IPV6 "|[vV][0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\\]"                            \
    "|([A-Za-z0-9._~!$&'()*+,;=-]|" PCT ")*)"
#define AUTHORITY "(" USER "@)?" HOST "(:[0-9]*)?"
#define SEGMENTS  "(/" PCHARS "*)*"
#define TAIL                                                                                       \
    "(\\?([A-Za-z0-9._~!$&'()*+,;=:@/?-]|" PCT ")*)?"                                              \
    "(#([A-Za-z0-9._~!$&'()*+,;=:@/?-]|" PCT ")*)?"
#define ROOTED   "//" AUTHORITY SEGMENTS "|/(" PCHARS "+" SEGMENTS ")?"
#define URI      "[A-Za-z][A-Za-z0-9+.-]*:(" ROOTED "|" PCHARS "+" SEGMENTS ")?" TAIL
#define RELATIVE "(" ROOTED "|" NO_COLON "+" SEGMENTS ")?" TAIL
#define WIDE                                                                                       \
    "\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF\\u{10000}-\\u{1FFFD}\\u{20000}-\\u{2FFFD}"      \
    "\\u{30000}-\\u{3FFFD}\\u{40000}-\\u{4FFFD}\\u{50000}-\\u{5FFFD}\\u{60000}-\\u{6FFFD}"         \
    "\\u{70000}-\\u{7FFFD}\\u{80000}-\\u{8FFFD}\\u{90000}-\\u{9FFFD}\\u{A0000}-\\u{AFFFD}"         \
    "\\u{B0000}-\\u{BFFFD}\\u{C0000}-\\u{CFFFD}\\u{D0000}-\\u{DFFFD}\\u{E1000}-\\u{EFFFD}"
#define PRIVATE "\\uE000-\\uF8FF\\u{F0000}-\\u{FFFFD}\\u{100000}-\\u{10FFFD}"

/* RFC 3987: the same with more characters, put in where these stand. A host that is a name is
 * checked no further than there. */
#define MANY      "\001"
#define OWN       "\002"
#define IPCHARS   "([A-Za-z0-9._~!$&'()*+,;=:@" MANY "-]|" PCT ")"
#define INO_COLON "([A-Za-z0-9._~!$&'()*+,;=@" MANY "-]|" PCT ")"
#define IUSER     "([A-Za-z0-9._~!$&'()*+,;=:" MANY "-]|" PCT ")*"
#define IHOST                                                                                      \
    "(\\[(" IPV6 "|[vV][0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\\]"                            \
    "|([A-Za-z0-9._~!$&'()*+,;=" MANY "-]|" PCT ")*)"
#define IAUTHORITY "(" IUSER "@)?" IHOST "(:[0-9]*)?"
#define ISEGMENTS  "(/" IPCHARS "*)*"
#define ITAIL                                                                                      \
    "(\\?([A-Za-z0-9._~!$&'()*+,;=:@/?" MANY OWN "-]|" PCT ")*)?"                                  \
    "(#([A-Za-z0-9._~!$&'()*+,;=:@/?" MANY "-]|" PCT ")*)?"
#define IROOTED   "//" IAUTHORITY ISEGMENTS "|/(" IPCHARS "+" ISEGMENTS ")?"
#define IRI       "[A-Za-z][A-Za-z0-9+.-]*:(" IROOTED "|" IPCHARS "+" ISEGMENTS ")?" ITAIL
#define IRELATIVE "(" IROOTED "|" INO_COLON "+" ISEGMENTS ")?" ITAIL

/* RFC 6570 */
#define VARNAME "([A-Za-z0-9_]|" PCT ")(\\.?([A-Za-z0-9_]|" PCT "))*"
#define VARSPEC VARNAME "(:[1-9][0-9]{0,3}|\\*)?"
#define TEMPLATE                                                                                   \
    "([!#$&-;=?-\\[\\]_a-z~" WIDE PRIVATE "]|" PCT "|\\{[+#./;?&=,!@|]?" VARSPEC "(," VARSPEC      \
    ")*\\})*"

#define POINTER "(/([^~/]|~[01])*)*"

static const struct {
    const char *name;
    const char *pattern; /* of the whole text; NULL: cannot be enforced */
    uint32_t max;        /* characters, 0: no limit */
} table[] = {
    {"date-time", DATE "[Tt]" TIME, 0},
    {"date", DATE, 0},
    {"time", TIME, 0},
    {"duration", DURATION, 0},
    {"email", EMAIL, 0},
    {"hostname", HOSTNAME, 253},
    {"ipv4", IPV4, 0},
    {"ipv6", IPV6, 0},
    {"uuid", "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", 0},
    {"uri", URI, 0},
    {"uri-reference", URI "|" RELATIVE, 0},
    {"iri", IRI, 0},
    {"iri-reference", IRI "|" IRELATIVE, 0},
    {"uri-template", TEMPLATE, 0},
    {"json-pointer", POINTER, 0},
    {"relative-json-pointer", "(0|[1-9][0-9]*)(#|" POINTER ")", 0},
    {"idn-email", NULL, 0},
    {"idn-hostname", NULL, 0},
    {"regex", NULL, 0},
};

static_assert(RVI_COUNT(table) == RVI_N_FORMATS, "a room for each format");

rv_status rvi_rx_format(rvi_rxs *p, const char *name, rvi_formats *known, rvi_rx *out,
                        rv_error *err)
{
    size_t i = 0;
    *out = RVI_RX_ALL;
    while (i < RVI_COUNT(table) && strcmp(table[i].name, name)) i++;
    if (i == RVI_COUNT(table)) return RV_OK;
    if (known->made[i] != RVI_RX_NONE) {
        *out = known->made[i];
        return RV_OK;
    }
    if (!table[i].pattern)
        return rvi_error(err, RV_E_UNSUPPORTED, "the format \"%s\" cannot be enforced", name);
    rvi_buf pattern = {0};
    for (const char *c = table[i].pattern; *c; c++)
        if (*c == *MANY || *c == *OWN)
            rvi_buf_puts(&pattern, *c == *MANY ? WIDE : PRIVATE);
        else
            rvi_buf_putc(&pattern, *c);
    rv_status st = pattern.failed ? rvi_nomem(err, "format")
                                  : rvi_rx_parse(p, pattern.data, pattern.len, true, out, err);
    rvi_buf_deinit(&pattern);
    if (!st && table[i].max)
        *out = rvi_rx_and(p, *out, rvi_rx_repeat(p, RVI_RX_CHAR, 0, table[i].max));
    if (!st) known->made[i] = *out;
    return st;
}
