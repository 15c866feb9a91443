/* The files read here are small and written by the kernel. Still, every number is checked, and a
 * list of CPUs is stored as a set of fixed size. */
#include "base/machine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compat.h"
#include "base/os.h"

#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#elif defined(__linux__) && defined(__aarch64__)
#include <sys/auxv.h>
#endif

enum { MAX_CPUS = 4096, MAX_PATH = 1024, MAX_FILE = 256 };

/* ASCII's, whatever the program's locale is. */
static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* ---- small files ---- */

/* The first line of a file, without its end. */
static bool read_line(const char *root, const char *path, char *out, size_t size)
{
    char full[MAX_PATH];
    int n = snprintf(full, sizeof full, "%s%s", root, path);
    if (n < 0 || (size_t)n >= sizeof full) return false;
    FILE *f = fopen(full, "re");
    if (!f) return false;
    bool ok = fgets(out, (int)size, f) != NULL;
    fclose(f);
    if (ok) out[strcspn(out, "\r\n")] = 0;
    return ok;
}

static bool parse_u64(const char *text, uint64_t *out, const char **rest)
{
    char *end;
    errno = 0;
    if (!is_digit(*text)) return false;
    unsigned long long v = strtoull(text, &end, 10);
    if (errno) return false;
    *out = v;
    if (rest) *rest = end;
    return true;
}

static bool read_u64(const char *root, const char *path, uint64_t *out)
{
    char line[MAX_FILE];
    return read_line(root, path, line, sizeof line) && parse_u64(line, out, NULL);
}

/* "48K", "2048K", "105M" */
static uint64_t parse_size(const char *text)
{
    const char *unit;
    uint64_t v;
    if (!parse_u64(text, &v, &unit) || v > UINT64_MAX >> 30) return 0;
    return *unit == 'K' ? v << 10 : *unit == 'M' ? v << 20 : *unit == 'G' ? v << 30 : v;
}

/* Calls each(ctx, key, value) for the lines "key : value" of a file, blanks around both cut. */
static void each_field(const char *root, const char *path,
                       void (*each)(void *ctx, const char *key, const char *value), void *ctx)
{
    char full[MAX_PATH], line[512];
    int n = snprintf(full, sizeof full, "%s%s", root, path);
    FILE *f = n < 0 || (size_t)n >= sizeof full ? NULL : fopen(full, "re");
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (!colon) continue;
        char *end = colon, *value = colon + 1;
        while (end > line && is_space(end[-1])) end--;
        *end = 0;
        while (is_space(*value)) value++;
        size_t len = strlen(value);
        while (len && is_space(value[len - 1])) value[--len] = 0;
        each(ctx, line, value);
    }
    if (f) fclose(f);
}

/* Copies what fits; characters that drive a terminal become '?'. */
static void copy_text(char *out, size_t size, const char *text)
{
    size_t n = 0;
    for (; text[n] && n + 1 < size; n++)
        out[n] = (unsigned char)text[n] < 0x20 || text[n] == 0x7F ? '?' : text[n];
    out[n] = 0;
}

/* ---- sets of CPUs ---- */

typedef struct cpu_set {
    uint64_t bits[MAX_CPUS / 64];
} cpu_set;

static bool has_cpu(const cpu_set *s, unsigned cpu)
{
    return cpu < MAX_CPUS && s->bits[cpu / 64] >> cpu % 64 & 1;
}

static int count_cpus(const cpu_set *s)
{
    int n = 0;
    for (unsigned i = 0; i < MAX_CPUS; i++) n += has_cpu(s, i);
    return n;
}

/* "0-3,8,10-11" */
static bool parse_cpus(const char *text, cpu_set *out)
{
    *out = (cpu_set){0};
    while (*text) {
        uint64_t first, last;
        if (!parse_u64(text, &first, &text)) return false;
        last = first;
        if (*text == '-' && !parse_u64(text + 1, &last, &text)) return false;
        for (uint64_t i = first; i <= last && i < MAX_CPUS; i++)
            out->bits[i / 64] |= (uint64_t)1 << i % 64;
        if (*text == ',') text++;
    }
    return count_cpus(out) > 0;
}

static bool read_cpus(const char *root, const char *path, cpu_set *out)
{
    char line[4096];
    return read_line(root, path, line, sizeof line) && parse_cpus(line, out);
}

/* ---- the CPU ---- */

/* Names of ARM cores: /proc/cpuinfo gives only the numbers of the main ID register. */
static const struct {
    unsigned implementer;
    const char *name;
} arm_vendors[] = {
    {0x41, "ARM"},       {0x42, "Broadcom"}, {0x43, "Cavium"},    {0x46, "Fujitsu"},
    {0x48, "HiSilicon"}, {0x4e, "NVIDIA"},   {0x50, "APM"},       {0x51, "Qualcomm"},
    {0x53, "Samsung"},   {0x61, "Apple"},    {0x6d, "Microsoft"}, {0xc0, "Ampere"},
};
static const struct {
    unsigned implementer, part;
    const char *name;
} arm_cores[] = {
    {0x41, 0xd03, "Cortex-A53"},  {0x41, 0xd04, "Cortex-A35"},  {0x41, 0xd05, "Cortex-A55"},
    {0x41, 0xd07, "Cortex-A57"},  {0x41, 0xd08, "Cortex-A72"},  {0x41, 0xd09, "Cortex-A73"},
    {0x41, 0xd0a, "Cortex-A75"},  {0x41, 0xd0b, "Cortex-A76"},  {0x41, 0xd0c, "Neoverse-N1"},
    {0x41, 0xd0d, "Cortex-A77"},  {0x41, 0xd40, "Neoverse-V1"}, {0x41, 0xd41, "Cortex-A78"},
    {0x41, 0xd44, "Cortex-X1"},   {0x41, 0xd46, "Cortex-A510"}, {0x41, 0xd47, "Cortex-A710"},
    {0x41, 0xd48, "Cortex-X2"},   {0x41, 0xd49, "Neoverse-N2"}, {0x41, 0xd4d, "Cortex-A715"},
    {0x41, 0xd4e, "Cortex-X3"},   {0x41, 0xd4f, "Neoverse-V2"}, {0x41, 0xd80, "Cortex-A520"},
    {0x41, 0xd81, "Cortex-A720"}, {0x41, 0xd82, "Cortex-X4"},   {0x41, 0xd84, "Neoverse-V3"},
    {0x41, 0xd8e, "Neoverse-N3"}, {0x46, 0x001, "A64FX"},       {0x48, 0xd01, "TaiShan-v110"},
    {0xc0, 0xac3, "Ampere-1"},    {0xc0, 0xac4, "Ampere-1a"},
};

enum { MAX_KINDS = 4 }; /* kinds of core that a name lists */

typedef struct cpu_text {
    rvi_machine_info *m;
    unsigned implementer;         /* of the CPU whose lines come by */
    unsigned kinds[MAX_KINDS][2]; /* implementer, part */
    size_t n_kinds;
} cpu_text;

static void add_kind(cpu_text *t, unsigned implementer, unsigned part)
{
    for (size_t i = 0; i < t->n_kinds; i++)
        if (t->kinds[i][0] == implementer && t->kinds[i][1] == part) return;
    if (t->n_kinds == MAX_KINDS) return;
    t->kinds[t->n_kinds][0] = implementer;
    t->kinds[t->n_kinds++][1] = part;
}

static void take_cpu_field(void *ctx, const char *key, const char *value)
{
    cpu_text *t = ctx;
    rvi_machine_info *m = t->m;
    if (!strcmp(key, "model name") && !m->cpu_name[0])
        copy_text(m->cpu_name, sizeof m->cpu_name, value);
    else if (!strcmp(key, "vendor_id") && !m->cpu_vendor[0])
        copy_text(m->cpu_vendor, sizeof m->cpu_vendor, value);
    else if (!strcmp(key, "CPU implementer"))
        t->implementer = (unsigned)strtoul(value, NULL, 0);
    else if (!strcmp(key, "CPU part"))
        add_kind(t, t->implementer, (unsigned)strtoul(value, NULL, 0));
}

static void append_kind(rvi_machine_info *m, unsigned implementer, unsigned part)
{
    const char *name = NULL;
    for (size_t i = 0; i < RVI_COUNT(arm_cores); i++)
        if (arm_cores[i].implementer == implementer && arm_cores[i].part == part)
            name = arm_cores[i].name;
    size_t len = strlen(m->cpu_name), room = sizeof m->cpu_name - len;
    if (name)
        snprintf(m->cpu_name + len, room, "%s%s", len ? " + " : "", name);
    else
        snprintf(m->cpu_name + len, room, "%simplementer 0x%02x part 0x%03x", len ? " + " : "",
                 implementer, part);
}

static void read_cpu_name(rvi_machine_info *m, const char *root)
{
    cpu_text t = {.m = m};
    each_field(root, "/proc/cpuinfo", take_cpu_field, &t);
    if (!m->cpu_name[0])
        for (size_t i = 0; i < t.n_kinds; i++) append_kind(m, t.kinds[i][0], t.kinds[i][1]);
    for (size_t i = 0; t.n_kinds && !m->cpu_vendor[0] && i < RVI_COUNT(arm_vendors); i++)
        if (arm_vendors[i].implementer == t.kinds[0][0])
            copy_text(m->cpu_vendor, sizeof m->cpu_vendor, arm_vendors[i].name);
}

static void take_allowed(void *ctx, const char *key, const char *value)
{
    if (!strcmp(key, "Cpus_allowed_list")) (void)parse_cpus(value, ctx);
}

/* A core is counted at the first of its usable CPUs. */
static void read_cores(rvi_machine_info *m, const char *root, const cpu_set *usable)
{
    for (unsigned cpu = 0; cpu < MAX_CPUS; cpu++) {
        char path[128];
        cpu_set siblings;
        if (!has_cpu(usable, cpu)) continue;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/core_cpus_list", cpu);
        if (!read_cpus(root, path, &siblings)) {
            snprintf(path, sizeof path,
                     "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", cpu);
            if (!read_cpus(root, path, &siblings)) {
                m->n_physical = m->smt = 0;
                return;
            }
        }
        int n = 0;
        unsigned first = MAX_CPUS;
        for (unsigned i = 0; i < MAX_CPUS; i++)
            if (has_cpu(&siblings, i) && has_cpu(usable, i)) {
                n++;
                first = RVI_MIN(first, i);
            }
        m->smt = RVI_MAX(m->smt, n);
        if (first == cpu) m->n_physical++;
    }
}

static void read_caches(rvi_machine_info *m, const char *root, const cpu_set *usable)
{
    unsigned cpu = 0;
    while (cpu < MAX_CPUS && !has_cpu(usable, cpu)) cpu++;
    for (unsigned i = 0; i < RVI_MACHINE_MAX_CACHES; i++) {
        char dir[96], path[128], line[MAX_FILE];
        rvi_machine_cache *c = &m->caches[m->n_caches];
        cpu_set shared;
        uint64_t level;
        snprintf(dir, sizeof dir, "/sys/devices/system/cpu/cpu%u/cache/index%u", cpu, i);
        snprintf(path, sizeof path, "%s/level", dir);
        if (!read_u64(root, path, &level) || level > 9) continue;
        snprintf(path, sizeof path, "%s/size", dir);
        if (!read_line(root, path, line, sizeof line)) continue;
        *c = (rvi_machine_cache){.level = (int)level, .bytes = parse_size(line)};
        if (!c->bytes) continue;
        snprintf(path, sizeof path, "%s/type", dir);
        if (read_line(root, path, line, sizeof line)) copy_text(c->type, sizeof c->type, line);
        for (char *p = c->type; *p; p++)
            if (*p >= 'A' && *p <= 'Z') *p = (char)(*p + 32);
        snprintf(path, sizeof path, "%s/shared_cpu_list", dir);
        if (read_cpus(root, path, &shared)) c->shared_by = count_cpus(&shared);
        m->n_caches++;
    }
}

uint64_t rvi_machine_cache_bytes(const rvi_machine_info *m, int level)
{
    uint64_t best = 0;
    for (size_t i = 0; i < m->n_caches; i++)
        if (m->caches[i].level == level && strcmp(m->caches[i].type, "instruction") != 0)
            best = RVI_MAX(best, m->caches[i].bytes);
    return best;
}

/* ---- memory and control groups ---- */

static void take_memory(void *ctx, const char *key, const char *value)
{
    rvi_machine_info *m = ctx;
    uint64_t kib;
    if (!parse_u64(value, &kib, NULL) || kib > UINT64_MAX >> 10) return;
    if (!strcmp(key, "MemTotal")) m->memory_total = kib << 10;
    if (!strcmp(key, "MemAvailable")) m->memory_available = kib << 10;
    if (!strcmp(key, "Hugepagesize")) m->huge_page_bytes = kib << 10;
}

/* Finds the path of one controller of this process's groups. v2 has a line "0::/path" for all of
 * them, v1 one such as "4:memory:/path" or "3:cpu,cpuacct:/path". */
typedef struct group {
    const char *controller;
    char v1[512], v2[512];
    bool has_v1, has_v2;
} group;

static bool names(const char *list, const char *controller)
{
    size_t len = strlen(controller);
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ",:");
        if (n == len && !memcmp(p, controller, n)) return true;
        p += n;
        if (*p != ',') return false;
        p++;
    }
    return false;
}

static void find_group(const char *root, group *g)
{
    char full[MAX_PATH], line[640];
    int n = snprintf(full, sizeof full, "%s/proc/self/cgroup", root);
    FILE *f = n < 0 || (size_t)n >= sizeof full ? NULL : fopen(full, "re");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\r\n")] = 0;
        char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
        if (!path || strstr(path, "..")) continue;
        *path++ = 0;
        if (!list[1]) {
            g->has_v2 = true;
            copy_text(g->v2, sizeof g->v2, path);
        } else if (names(list + 1, g->controller)) {
            g->has_v1 = true;
            copy_text(g->v1, sizeof g->v1, path);
        }
    }
    if (f) fclose(f);
}

/* Calls each(ctx, root, dir) for the group's folder and all above it, up to the mount. A container
 * often sees only the mount itself, whatever path it is told. */
static void each_folder(const char *root, const char *mount, const char *path,
                        void (*each)(void *ctx, const char *root, const char *dir), void *ctx)
{
    char dir[MAX_PATH];
    size_t base = strlen(mount);
    int n = snprintf(dir, sizeof dir, "%s%s", mount, path);
    if (n < 0 || (size_t)n >= sizeof dir) return;
    for (size_t len = (size_t)n; len >= base; len--) {
        if (len > base && dir[len] && dir[len] != '/') continue;
        if (len > base && dir[len - 1] == '/') continue;
        dir[len] = 0;
        each(ctx, root, dir);
    }
}

typedef struct memory_files {
    rvi_machine_info *m;
    const char *limit, *usage, *reclaimable; /* the last: a key of memory.stat */
} memory_files;

static bool stat_value(const char *root, const char *dir, const char *key, uint64_t *out)
{
    char full[MAX_PATH], line[MAX_FILE];
    size_t len = strlen(key);
    bool found = false;
    int n = snprintf(full, sizeof full, "%s%s/memory.stat", root, dir);
    FILE *f = n < 0 || (size_t)n >= sizeof full ? NULL : fopen(full, "re");
    while (f && !found && fgets(line, sizeof line, f))
        found =
            !strncmp(line, key, len) && line[len] == ' ' && parse_u64(line + len + 1, out, NULL);
    if (f) fclose(f);
    return found;
}

static void take_limit(void *ctx, const char *root, const char *dir)
{
    const memory_files *files = ctx;
    rvi_machine_info *m = files->m;
    char path[MAX_PATH + 64];
    uint64_t limit, used, cached = 0;
    snprintf(path, sizeof path, "%s/%s", dir, files->limit);
    /* "max", or a number beyond the machine's memory: no limit */
    if (!read_u64(root, path, &limit) || (m->memory_total && limit >= m->memory_total)) return;
    if (limit >= (uint64_t)1 << 60) return;
    if (!m->memory_limit || limit < m->memory_limit) m->memory_limit = limit;
    snprintf(path, sizeof path, "%s/%s", dir, files->usage);
    if (!read_u64(root, path, &used)) return;
    (void)stat_value(root, dir, files->reclaimable, &cached);
    used -= RVI_MIN(used, cached);
    uint64_t left = limit - RVI_MIN(limit, used);
    if (!m->memory_available || left < m->memory_available) m->memory_available = left;
}

static void read_memory(rvi_machine_info *m, const char *root)
{
    each_field(root, "/proc/meminfo", take_memory, m);
    group g = {.controller = "memory"};
    find_group(root, &g);
    memory_files v2 = {m, "memory.max", "memory.current", "inactive_file"};
    memory_files v1 = {m, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
    if (g.has_v2) each_folder(root, "/sys/fs/cgroup", g.v2, take_limit, &v2);
    if (g.has_v1) each_folder(root, "/sys/fs/cgroup/memory", g.v1, take_limit, &v1);
}

static void take_quota(rvi_machine_info *m, uint64_t quota, uint64_t period)
{
    if (!quota || !period) return;
    double cpus = (double)quota / (double)period;
    if (cpus < m->n_logical && (m->cpu_quota <= 0 || cpus < m->cpu_quota)) m->cpu_quota = cpus;
}

static void take_quota_v2(void *ctx, const char *root, const char *dir)
{
    char path[MAX_PATH + 64], line[MAX_FILE];
    const char *rest;
    uint64_t quota, period;
    snprintf(path, sizeof path, "%s/cpu.max", dir); /* "max 100000" or "200000 100000" */
    if (read_line(root, path, line, sizeof line) && parse_u64(line, &quota, &rest) &&
        *rest == ' ' && parse_u64(rest + 1, &period, NULL))
        take_quota(ctx, quota, period);
}

static void take_quota_v1(void *ctx, const char *root, const char *dir)
{
    char path[MAX_PATH + 64];
    uint64_t quota, period;
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", dir); /* -1: none */
    if (!read_u64(root, path, &quota)) return;
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", dir);
    if (read_u64(root, path, &period)) take_quota(ctx, quota, period);
}

/* ---- the whole ---- */

/* "always [madvise] never": the chosen word */
static void read_huge_pages(rvi_machine_info *m, const char *root)
{
    char line[MAX_FILE];
    if (!read_line(root, "/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof line)) return;
    char *from = strchr(line, '['), *to = from ? strchr(from, ']') : NULL;
    if (!to) return;
    *to = 0;
    copy_text(m->huge_pages, sizeof m->huge_pages, from + 1);
}

void rvi_machine_read(rvi_machine_info *out, const char *root)
{
    cpu_set usable = {0};
    long page = sysconf(_SC_PAGESIZE);
    *out = (rvi_machine_info){.page_bytes = page > 0 ? (uint64_t)page : 0};
    read_cpu_name(out, root);
    each_field(root, "/proc/self/status", take_allowed, &usable);
    out->n_logical = count_cpus(&usable);
    if (out->n_logical) {
        read_cores(out, root, &usable);
        read_caches(out, root, &usable);
    } else {
        out->n_logical = rvi_os_cpu_count();
    }
    read_memory(out, root);
    group cpu = {.controller = "cpu"};
    find_group(root, &cpu);
    if (cpu.has_v2) each_folder(root, "/sys/fs/cgroup", cpu.v2, take_quota_v2, out);
    if (cpu.has_v1) each_folder(root, "/sys/fs/cgroup/cpu", cpu.v1, take_quota_v1, out);
    read_huge_pages(out, root);
}

bool rvi_machine_permit_tiles(void)
{
#if defined(__linux__) && defined(__x86_64__) && defined(SYS_arch_prctl)
    enum {
        REQUEST_PERMISSION = 0x1023,
        TILE_DATA = 18
    }; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
    return false;
#endif
}

void rvi_machine_arm_features(uint64_t *first, uint64_t *second)
{
#if defined(__linux__) && defined(__aarch64__)
    *first = getauxval(AT_HWCAP);
    *second = getauxval(AT_HWCAP2);
#else
    *first = *second = 0;
#endif
}
