/* jinja_time.c - strftime_now, in the C locale and with the flags of glibc ("%-d"). */
#include <string.h>

#include "template/jinja_run.h"

static const char *const months[] = {"January",   "February", "March",    "April",
                                     "May",       "June",     "July",     "August",
                                     "September", "October",  "November", "December"};
static const char *const days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                   "Thursday", "Friday", "Saturday"};

static bool leap(int year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

/* 0 = 1 January */
static int year_day(const rvi_template_now *t)
{
    static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    return before[t->month - 1] + t->day - 1 + (t->month > 2 && leap(t->year));
}

/* 0 = Sunday */
static int week_day(const rvi_template_now *t)
{
    int y = t->year - 1;
    int days_before =
        y * 365 + y / 4 - y / 100 + y / 400 + year_day(t); /* since 1 January of year 1, a Monday */
    return (days_before + 1) % 7;
}

/* ISO 8601 week and its year. */
static int iso_week(const rvi_template_now *t, int *year)
{
    int monday = (week_day(t) + 6) % 7; /* 0 = Monday */
    int week = (year_day(t) - monday + 10) / 7;
    *year = t->year;
    rvi_template_now last = {.year = week < 1 ? t->year - 1 : t->year, .month = 12, .day = 31};
    int last_monday = (week_day(&last) + 6) % 7;
    int weeks = (year_day(&last) - last_monday + 10) / 7; /* 53 means: belongs to this year */
    if (last_monday < 3) weeks = 52;
    if (week < 1) {
        --*year;
        return weeks;
    }
    if (week > weeks) {
        ++*year;
        return 1;
    }
    return week;
}

/* flag: '-' no padding, '_' blanks, '0' zeros, 0 as usual */
static void number(rvi_buf *out, int v, int width, char pad, char flag)
{
    if (flag == '-')
        width = 1;
    else if (flag)
        pad = flag == '_' ? ' ' : '0';
    rvi_buf_printf(out, pad == ' ' ? "%*d" : "%0*d", width, v);
}

static void word(rvi_buf *out, const char *text, size_t len, bool upper)
{
    for (size_t i = 0; i < len; i++)
        rvi_buf_putc(out,
                     upper && text[i] >= 'a' && text[i] <= 'z' ? (char)(text[i] - 32) : text[i]);
}

static void directive(rvi_buf *out, const rvi_template_now *t, char c, char flag)
{
    int hour12 = t->hour % 12 ? t->hour % 12 : 12, year;
    bool upper = flag == '^';
    char pad = flag == '^' || flag == '#' ? 0 : flag;
    switch (c) {
    case 'a': word(out, days[week_day(t)], 3, upper || flag == '#'); break;
    case 'A': word(out, days[week_day(t)], strlen(days[week_day(t)]), upper || flag == '#'); break;
    case 'b':
    case 'h': word(out, months[t->month - 1], 3, upper || flag == '#'); break;
    case 'B':
        word(out, months[t->month - 1], strlen(months[t->month - 1]), upper || flag == '#');
        break;
    case 'C': number(out, t->year / 100, 2, '0', pad); break;
    case 'd': number(out, t->day, 2, '0', pad); break;
    case 'e': number(out, t->day, 2, ' ', pad); break;
    case 'f': rvi_buf_puts(out, "000000"); break;
    case 'g': iso_week(t, &year), number(out, year % 100, 2, '0', pad); break;
    case 'G': iso_week(t, &year), number(out, year, 1, '0', pad); break;
    case 'H': number(out, t->hour, 2, '0', pad); break;
    case 'I': number(out, hour12, 2, '0', pad); break;
    case 'j': number(out, year_day(t) + 1, 3, '0', pad); break;
    case 'k': number(out, t->hour, 2, ' ', pad); break;
    case 'l': number(out, hour12, 2, ' ', pad); break;
    case 'm': number(out, t->month, 2, '0', pad); break;
    case 'M': number(out, t->minute, 2, '0', pad); break;
    case 'n': rvi_buf_putc(out, '\n'); break;
    case 'p':
        rvi_buf_puts(out,
                     flag == '#' ? (t->hour < 12 ? "am" : "pm") : (t->hour < 12 ? "AM" : "PM"));
        break;
    case 'P': rvi_buf_puts(out, t->hour < 12 ? "am" : "pm"); break;
    case 'S': number(out, t->second, 2, '0', pad); break;
    case 't': rvi_buf_putc(out, '\t'); break;
    case 'u': number(out, week_day(t) ? week_day(t) : 7, 1, '0', pad); break;
    case 'U': number(out, (year_day(t) + 7 - week_day(t)) / 7, 2, '0', pad); break;
    case 'V': number(out, iso_week(t, &year), 2, '0', pad); break;
    case 'w': number(out, week_day(t), 1, '0', pad); break;
    case 'W': number(out, (year_day(t) + 7 - (week_day(t) + 6) % 7) / 7, 2, '0', pad); break;
    case 'y': number(out, t->year % 100, 2, '0', pad); break;
    case 'Y': number(out, t->year, 1, '0', pad); break;
    case 'z':
    case 'Z': break; /* the time has no zone */
    case '%': rvi_buf_putc(out, '%'); break;
    default: /* unknown ones stay as they are */
        rvi_buf_putc(out, '%');
        if (flag) rvi_buf_putc(out, flag);
        rvi_buf_putc(out, c);
    }
}

/* Directives that are short for several others. */
static const char *expansion(char c)
{
    switch (c) {
    case 'c': return "%a %b %e %H:%M:%S %Y";
    case 'D':
    case 'x': return "%m/%d/%y";
    case 'F': return "%Y-%m-%d";
    case 'r': return "%I:%M:%S %p";
    case 'R': return "%H:%M";
    case 'T':
    case 'X': return "%H:%M:%S";
    default: return NULL;
    }
}

static void format(rvi_buf *out, const rvi_template_now *t, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (text[i] != '%' || i + 1 == len) {
            rvi_buf_putc(out, text[i]);
            continue;
        }
        char flag = text[i + 1] && strchr("-_0^#", text[i + 1]) && i + 2 < len ? text[i + 1] : 0;
        i += flag ? 2 : 1;
        const char *many = expansion(text[i]);
        if (many)
            format(out, t, many, strlen(many)); /* expansions hold no further ones */
        else
            directive(out, t, text[i], flag);
    }
}

rvi_jv rvi_jinja_strftime(rvi_jrun *r, const rvi_jstr *text)
{
    const rvi_template_now *t = r->now;
    if (!t) return rvi_jinja_fail(r, "strftime_now: the time is not known here");
    if (t->year < 1 || t->year > 9999 || t->month < 1 || t->month > 12 || t->day < 1 ||
        t->day > 31 || t->hour < 0 || t->hour > 23 || t->minute < 0 || t->minute > 59 ||
        t->second < 0 || t->second > 61)
        return rvi_jinja_fail(r, "strftime_now: not a valid time");
    size_t start = rvi_jinja_build(r);
    format(&r->scratch, t, text->data, text->len);
    if (!rvi_jinja_charge_bytes(r, 8 * text->len)) return rvi_jinja_drop(r, start);
    rvi_jinja_trace(r, &r->scratch, text, start);
    return rvi_jinja_take(r, start);
}
