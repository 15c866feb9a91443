/* WASI has files and a clock, but no processes, CPU count or terminal: functions that need these
 * are missing there (os.h says which) or return their value for "unknown". */
#include "base/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifndef __wasi__
#include <poll.h>
#include <sched.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

extern char **environ;
#endif

#include "base/mem.h"

static rv_status fail(rv_error *err, const char *path, const char *doing, int code)
{
    rv_status st = code == ENOENT || code == ENOTDIR ? RV_E_NOT_FOUND : RV_E_IO;
    return rvi_error(err, st, "%s: %s: %s", path, doing, strerror(code));
}

#ifndef __wasi__
void *rvi_os_alloc_large(size_t size)
{
    enum { HUGE = 2 << 20 };
    void *p = rvi_alloc_aligned(size, size < HUGE ? 64 : HUGE);
#ifdef MADV_HUGEPAGE
    if (p && size >= HUGE)
        madvise(p, size / HUGE * HUGE, MADV_HUGEPAGE); /* a wish, may be refused */
#endif
    return p;
}

void rvi_os_release_mapped(const void *data, size_t size)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)data + page - 1) / page * page,
              to = ((uintptr_t)data + size) / page * page;
    if (from < to) madvise((void *)from, to - from, MADV_DONTNEED);
}
#else
void *rvi_os_alloc_large(size_t size)
{
    return rvi_alloc_aligned(size, 64);
}

void rvi_os_release_mapped(const void *data, size_t size)
{
    (void)data;
    (void)size;
}
#endif

double rvi_os_thread_seconds(void)
{
#ifdef CLOCK_THREAD_CPUTIME_ID
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
#else
    return rvi_os_seconds();
#endif
}

double rvi_os_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int rvi_os_cpu_count(void)
{
#ifdef __wasi__
    return 1;
#else
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) ? (int)sysconf(_SC_NPROCESSORS_ONLN)
                                                   : CPU_COUNT(&set);
    return n > 0 ? n : 1;
#endif
}

uint64_t rvi_os_random(void)
{
    uint64_t v;
    if (getentropy(&v, sizeof v)) {
        v = (uint64_t)(rvi_os_seconds() * 1e9);
#ifndef __wasi__
        v ^= (uint64_t)getpid() << 32;
#endif
    }
    return v;
}

long rvi_os_process(void)
{
#ifdef __wasi__
    return 0;
#else
    return (long)getpid();
#endif
}

size_t rvi_os_peak_rss(void)
{
#ifdef __wasi__
    return 0;
#else
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) ? 0 : (size_t)u.ru_maxrss * 1024;
#endif
}

double rvi_os_load(void)
{
    double load = -1;
#ifndef __wasi__
    if (getloadavg(&load, 1) != 1) load = -1;
#endif
    return load;
}

bool rvi_os_is_terminal(FILE *f)
{
    return isatty(fileno(f)) == 1;
}

#ifndef __wasi__
bool rvi_os_is_readable(FILE *f)
{
    int flags = fcntl(fileno(f), F_GETFL);
    return flags >= 0 && (flags & O_ACCMODE) != O_WRONLY;
}

bool rvi_os_has_input(FILE *f, int seconds)
{
    struct pollfd input = {.fd = fileno(f), .events = POLLIN};
    return poll(&input, 1, seconds * 1000) != 0;
}

void rvi_os_hold_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0) (void)open("/dev/null", fd ? O_RDONLY : O_WRONLY);
}
#endif

int rvi_os_terminal_width(FILE *f)
{
#ifdef __wasi__
    (void)f;
    return 80;
#else
    struct winsize w;
    return ioctl(fileno(f), TIOCGWINSZ, &w) || !w.ws_col ? 80 : w.ws_col;
#endif
}

bool rvi_os_is_device(const char *path)
{
    struct stat info;
    return !lstat(path, &info) && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode) &&
           !S_ISLNK(info.st_mode);
}

bool rvi_os_is_socket(const char *path)
{
    struct stat info;
    return !lstat(path, &info) && S_ISSOCK(info.st_mode);
}

void rvi_os_allow_files(unsigned n)
{
#ifdef __wasi__
    (void)n;
#else
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) || r.rlim_cur >= n) return;
    r.rlim_cur = r.rlim_max < n ? r.rlim_max : n;
    (void)setrlimit(RLIMIT_NOFILE, &r);
#endif
}

bool rvi_os_same(const char *a, const char *b)
{
    struct stat one, two;
    return !stat(a, &one) && !stat(b, &two) && one.st_dev == two.st_dev && one.st_ino == two.st_ino;
}

rvi_os_kind rvi_os_stat(const char *path, uint64_t *size)
{
    struct stat info;
    if (stat(path, &info)) return RVI_OS_NONE;
    if (size) *size = (uint64_t)info.st_size;
    return S_ISREG(info.st_mode) ? RVI_OS_FILE : S_ISDIR(info.st_mode) ? RVI_OS_DIR : RVI_OS_OTHER;
}

bool rvi_os_resolve(const char *path, rvi_buf *out)
{
#ifdef __wasi__
    (void)path;
    (void)out;
    return false;
#else
    char *whole = realpath(path, NULL);
    bool done = whole && rvi_buf_puts(out, whole);
    free(whole);
    return done;
#endif
}

rvi_os_version rvi_os_version_of(const char *path)
{
    struct stat info;
    if (stat(path, &info)) return (rvi_os_version){0};
    return (rvi_os_version){.device = (uint64_t)info.st_dev,
                            .inode = (uint64_t)info.st_ino,
                            .size = (uint64_t)info.st_size,
                            .seconds = (uint64_t)info.st_mtim.tv_sec,
                            .nanoseconds = (uint64_t)info.st_mtim.tv_nsec};
}

static rv_status make_dirs(const char *path, mode_t mode, rv_error *err)
{
    rvi_buf b = {0};
    rv_status st = RV_OK;
    if (!rvi_buf_puts(&b, path)) st = rvi_nomem(err, "path");
    for (size_t i = 1; !st && i <= b.len; i++) {
        if (i < b.len && b.data[i] != '/') continue;
        char keep = b.data[i];
        b.data[i] = 0;
        if (mkdir(b.data, mode)) {
            int code = errno;
            if (rvi_os_stat(b.data, NULL) != RVI_OS_DIR)
                st = fail(err, b.data, "cannot make the directory", code);
        }
        b.data[i] = keep;
    }
    rvi_buf_deinit(&b);
    return st;
}

rv_status rvi_os_make_dirs(const char *path, rv_error *err)
{
    return make_dirs(path, 0777, err);
}

rv_status rvi_os_make_private_dirs(const char *path, rv_error *err)
{
    return make_dirs(path, 0700, err);
}

#ifndef __wasi__
void rvi_os_make_private(const char *path)
{
    struct stat info;
    if (!stat(path, &info) && info.st_mode & 077)
        (void)chmod(path, info.st_mode & 0700); /* refused where it is another user's */
}

void rvi_os_touch_private(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0) close(fd);
}

void rvi_os_private_files(bool on)
{
    static mode_t found;
    static bool is_on;
    if (on == is_on) return;
    is_on = on;
    if (on)
        found = umask(077);
    else
        (void)umask(found);
}
#endif

static rv_status lock_file(const char *path, bool alone, int *lock, rv_error *err)
{
    *lock = -1;
#ifdef __wasi__
    (void)path;
    (void)alone;
    (void)err;
#else
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return fail(err, path, "cannot open", errno);
    struct stat own, now;
    while (flock(fd, (alone ? LOCK_EX : LOCK_SH) | LOCK_NB)) {
        if (errno == EINTR) continue;
        int why = errno;
        close(fd);
        if (why == EWOULDBLOCK)
            return rvi_error(err, RV_E_STORAGE, "%s: another process holds it", path);
        return fail(err, path, "cannot lock", why);
    }
    /* whoever held it may have removed the file, and another made a new one */
    if (fstat(fd, &own) || stat(path, &now) || own.st_ino != now.st_ino ||
        own.st_dev != now.st_dev) {
        close(fd);
        return lock_file(path, alone, lock, err);
    }
    *lock = fd;
#endif
    return RV_OK;
}

rv_status rvi_os_lock(const char *path, int *lock, rv_error *err)
{
    return lock_file(path, true, lock, err);
}

rv_status rvi_os_lock_shared(const char *path, int *lock, rv_error *err)
{
    return lock_file(path, false, lock, err);
}

void rvi_os_unlock(int lock)
{
    if (lock >= 0) close(lock);
}

static int remove_entry(void *ctx, const char *name)
{
    rvi_buf path = {0};
    if (rvi_buf_printf(&path, "%s/%s", (const char *)ctx, name)) rvi_os_remove_tree(path.data);
    rvi_buf_deinit(&path);
    return 0;
}

void rvi_os_remove_tree(const char *path)
{
    struct stat info;
    if (lstat(path, &info)) return;
    if (!S_ISDIR(info.st_mode)) {
        (void)unlink(path);
        return;
    }
    char *dir = strdup(path);
    if (dir && rvi_os_list(dir, remove_entry, dir, NULL) == RV_OK) (void)rmdir(dir);
    free(dir);
}

rv_status rvi_os_replace(const char *from, const char *to, rv_error *err)
{
    return rename(from, to) ? fail(err, to, "cannot move the file into place", errno) : RV_OK;
}

/* Exchanges two names atomically; false if the system cannot. */
static bool exchange(const char *a, const char *b)
{
#if defined(__linux__) && defined(RENAME_EXCHANGE)
    return !renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
#else
    (void)a;
    (void)b;
    return false;
#endif
}

rv_status rvi_os_replace_dir(const char *from, const char *to, rv_error *err)
{
    if (rvi_os_stat(to, NULL) == RVI_OS_NONE) return rvi_os_replace(from, to, err);
    if (exchange(from, to)) {
        rvi_os_remove_tree(from);
        return RV_OK;
    }
    rvi_buf old = {0};
    rv_status st = RV_OK;
    if (!rvi_buf_printf(&old, "%s.old", from)) st = rvi_nomem(err, "path");
    if (!st) st = rvi_os_replace(to, old.data, err);
    if (!st) {
        st = rvi_os_replace(from, to, err);
        if (st) (void)rename(old.data, to); /* back again: the first error is the one that counts */
    }
    if (!st) rvi_os_remove_tree(old.data);
    rvi_buf_deinit(&old);
    return st;
}

rv_status rvi_os_create_beside(const char *path, rvi_buf *name, FILE **out, rv_error *err)
{
    *out = NULL;
    if (!rvi_buf_printf(name, "%s.tmp-%016llx", path, (unsigned long long)rvi_os_random()))
        return rvi_nomem(err, "path");
    int fd = open(name->data, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return fail(err, path, "cannot write", errno);
    *out = fdopen(fd, "wb");
    if (*out) return RV_OK;
    int code = errno;
    close(fd);
    (void)unlink(name->data);
    return fail(err, path, "cannot write", code);
}

rv_status rvi_os_write(FILE *f, const void *data, size_t len, const char *path, rv_error *err)
{
    if (!len || fwrite(data, 1, len, f) == len) return RV_OK;
    return fail(err, path, "cannot write", errno);
}

rv_status rvi_os_seek(FILE *f, uint64_t at, const char *path, rv_error *err)
{
    return fseeko(f, (off_t)at, SEEK_SET) ? fail(err, path, "cannot write", errno) : RV_OK;
}

void rvi_os_cut(const char *path, uint64_t len)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return;
    struct stat st;
    if (!fstat(fd, &st) && (uint64_t)st.st_size > len && ftruncate(fd, (off_t)len)) {
        /* it stays longer */
    }
    close(fd);
}

rv_status rvi_os_sync(FILE *f, const char *path, rv_error *err)
{
    if (fflush(f) || fsync(fileno(f))) return fail(err, path, "cannot write", errno);
    return RV_OK;
}

rv_status rvi_os_sync_dir(const char *path, rv_error *err)
{
#ifdef __wasi__
    (void)path;
    (void)err;
    return RV_OK;
#else
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return fail(err, path, "cannot open", errno);
    int code = fsync(fd) ? errno : 0;
    close(fd);
    /* EINVAL: a file system that cannot do it, and keeps its own order */
    return code && code != EINVAL ? fail(err, path, "cannot write", code) : RV_OK;
#endif
}

rv_status rvi_os_sync_parent(const char *path, rv_error *err)
{
    rvi_buf dir = {0};
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/') len--; /* a directory's name may end with them */
    while (len && path[len - 1] != '/') len--;
    if (len ? !rvi_buf_append(&dir, path, len) : !rvi_buf_putc(&dir, '.'))
        return rvi_nomem(err, "path");
    rv_status st = rvi_os_sync_dir(dir.data, err);
    rvi_buf_deinit(&dir);
    return st;
}

rv_status rvi_os_list(const char *dir, int (*each)(void *ctx, const char *name), void *ctx,
                      rv_error *err)
{
    struct dirent **entries;
    int n = scandir(dir, &entries, NULL, alphasort);
    if (n < 0) return fail(err, dir, "cannot list", errno);
    int stop = 0;
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name;
        if (!stop && strcmp(name, ".") && strcmp(name, "..")) stop = each(ctx, name);
        free(entries[i]);
    }
    free(entries);
    return RV_OK;
}

#ifndef __wasi__

rv_status rvi_os_temp_dir(rvi_buf *out, const char *parent, rv_error *err)
{
    if (!rvi_buf_printf(out, "%s/tmp-XXXXXX", parent)) return rvi_nomem(err, "path");
    return mkdtemp(out->data) ? RV_OK
                              : fail(err, parent, "cannot make a temporary directory", errno);
}

rv_status rvi_os_run(const char *const *argv, const char *dir, int *exit_code, rv_error *err)
{
    return rvi_os_run_watched(argv, dir, NULL, NULL, exit_code, err);
}

rv_status rvi_os_run_watched(const char *const *argv, const char *dir, void (*tick)(void *ctx),
                             void *ctx, int *exit_code, rv_error *err)
{
    const struct timespec tenth = {0, 100000000};
    pid_t ended;
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status;
    *exit_code = 127;
    if (posix_spawn_file_actions_init(&actions)) return rvi_nomem(err, argv[0]);
    int code = posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    if (!code && dir) code = posix_spawn_file_actions_addchdir_np(&actions, dir);
    if (!code)
        code = posix_spawnp(&pid, argv[0], &actions, NULL, (char *const *)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (code) return fail(err, argv[0], "cannot start the program", code);
    while ((ended = waitpid(pid, &status, tick ? WNOHANG : 0)) != pid) {
        if (ended < 0 && errno != EINTR)
            return fail(err, argv[0], "cannot wait for the program", errno);
        if (!tick) continue;
        tick(ctx);
        (void)nanosleep(&tenth, NULL);
    }
    *exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return RV_OK;
}

#endif
