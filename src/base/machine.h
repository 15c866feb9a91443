/* machine.h - what the operating system says about the machine this process runs on.
 *
 * Everything is read from the files of /proc and /sys. Whatever the system does not report stays
 * empty or 0 (unknown); nothing is guessed. */
#ifndef RVI_BASE_MACHINE_H
#define RVI_BASE_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RVI_MACHINE_MAX_CACHES = 16 };

typedef struct rvi_machine_cache {
    int level;
    char type[16]; /* "data", "instruction", "unified" */
    uint64_t bytes;
    int shared_by; /* CPUs that share one such cache; 0: unknown */
} rvi_machine_cache;

typedef struct rvi_machine_info {
    char cpu_name[128], cpu_vendor[64];
    int n_logical;    /* CPUs this process may use, at least 1 */
    int n_physical;   /* cores that these belong to */
    int smt;          /* most of these CPUs on one core */
    double cpu_quota; /* CPUs' worth of time a control group grants; 0: all, or unknown */
    rvi_machine_cache caches[RVI_MACHINE_MAX_CACHES]; /* as the first usable CPU sees them */
    size_t n_caches;
    uint64_t memory_total, memory_available; /* bytes; available: under the limit too */
    uint64_t memory_limit;                   /* of the control group; 0: none, or unknown */
    uint64_t page_bytes, huge_page_bytes;
    char huge_pages[16]; /* transparent ones: "always", "madvise", "never" */
} rvi_machine_info;

/* root is put before every path, so that a test can provide its own tree; "" is this machine. */
void rvi_machine_read(rvi_machine_info *out, const char *root);

/* Bytes of the largest data or unified cache of a level; 0: unknown. */
uint64_t rvi_machine_cache_bytes(const rvi_machine_info *m, int level);

/* Asks the system for the right to use the x86 tile registers, for all threads of the process.
 * False if the system refuses; using the tiles would then be an illegal instruction. */
bool rvi_machine_permit_tiles(void);

/* The capability words that the system hands an ARM process (AT_HWCAP, AT_HWCAP2); 0 elsewhere. */
void rvi_machine_arm_features(uint64_t *first, uint64_t *second);

#endif
