/* What the system says about the machine: this one, and trees of files that stand for others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/machine.h"
#include "base/os.h"

static rvi_buf root;

static int set_up(void **state)
{
    (void)state;
    root = (rvi_buf){0};
    return rvi_os_temp_dir(&root, "/tmp", NULL) ? -1 : 0;
}

static int tear_down(void **state)
{
    (void)state;
    rvi_os_remove_tree(root.data);
    rvi_buf_deinit(&root);
    return 0;
}

static void put(const char *path, const char *text)
{
    rvi_buf full = {0};
    assert_true(rvi_buf_printf(&full, "%s%s", root.data, path));
    char *slash = strrchr(full.data, '/');
    *slash = 0;
    assert_int_equal(rvi_os_make_dirs(full.data, NULL), RV_OK);
    *slash = '/';
    FILE *f = fopen(full.data, "wb");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    rvi_buf_deinit(&full);
}

static void put_cache(int cpu, int index, const char *level, const char *type, const char *size,
                      const char *shared)
{
    const char *const names[] = {"level", "type", "size", "shared_cpu_list"};
    const char *const values[] = {level, type, size, shared};
    for (size_t i = 0; i < RVI_COUNT(names); i++) {
        char path[128];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cache/index%d/%s", cpu, index,
                 names[i]);
        if (values[i]) put(path, values[i]);
    }
}

static void put_siblings(int cpu, const char *file, const char *list)
{
    char path[128];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, file);
    put(path, list);
}

static void test_this_machine(void **state)
{
    (void)state;
    rvi_machine_info m;
    rvi_machine_read(&m, "");
    assert_in_range(m.n_logical, 1, 100000);
    assert_int_equal(m.n_logical, rvi_os_cpu_count());
    assert_in_range(m.n_physical, 0, m.n_logical);
    assert_in_range(m.smt, 0, m.n_logical);
    assert_true(m.memory_total > 1 << 20);
    assert_true(m.memory_available <= m.memory_total);
    assert_true(m.page_bytes >= 4096 && (m.page_bytes & (m.page_bytes - 1)) == 0);
    assert_in_range(m.n_caches, 0, RVI_MACHINE_MAX_CACHES);
    for (size_t i = 0; i < m.n_caches; i++) assert_in_range(m.caches[i].level, 1, 9);
}

static void test_nothing_is_known(void **state)
{
    (void)state;
    rvi_machine_info m;
    rvi_machine_read(&m, root.data);
    assert_string_equal(m.cpu_name, "");
    assert_string_equal(m.cpu_vendor, "");
    assert_true(m.n_logical >= 1);
    assert_int_equal(m.n_physical, 0);
    assert_int_equal(m.smt, 0);
    assert_int_equal(m.n_caches, 0);
    assert_int_equal(m.memory_total, 0);
    assert_int_equal(m.memory_available, 0);
    assert_int_equal(m.memory_limit, 0);
    assert_string_equal(m.huge_pages, "");
    assert_int_equal(rvi_machine_cache_bytes(&m, 3), 0);
}

static void test_x86_with_smt(void **state)
{
    (void)state;
    rvi_machine_info m;
    put("/proc/cpuinfo",
        "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Some  CPU @ 2 GHz\n\n"
        "processor\t: 1\nvendor_id\t: Other\nmodel name\t: Another\n");
    put("/proc/self/status", "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t0-2,4-6\n");
    for (int i = 0; i < 8; i++) { /* four cores; CPU i and i + 4 share one */
        char list[16];
        snprintf(list, sizeof list, "%d,%d\n", i % 4, i % 4 + 4);
        put_siblings(i, "core_cpus_list", list);
    }
    put_cache(0, 0, "1\n", "Data\n", "48K\n", "0,4\n");
    put_cache(0, 1, "1\n", "Instruction\n", "32K\n", "0,4\n");
    put_cache(0, 2, "2\n", "Unified\n", "2048K\n", "0,4\n");
    put_cache(0, 3, "3\n", "Unified\n", "105M\n", "0-7\n");
    put("/proc/meminfo", "MemTotal:       24682416 kB\nMemFree: 1 kB\nMemAvailable:   24089464 "
                         "kB\nHugepagesize:       2048 kB\n");
    put("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    rvi_machine_read(&m, root.data);
    assert_string_equal(m.cpu_name, "Some  CPU @ 2 GHz");
    assert_string_equal(m.cpu_vendor, "GenuineIntel");
    assert_int_equal(m.n_logical, 6);
    assert_int_equal(m.n_physical, 3);
    assert_int_equal(m.smt, 2);
    assert_int_equal(m.n_caches, 4);
    assert_string_equal(m.caches[1].type, "instruction");
    assert_int_equal(m.caches[3].bytes, 105u << 20);
    assert_int_equal(m.caches[3].shared_by, 8);
    assert_int_equal(rvi_machine_cache_bytes(&m, 1), 48u << 10);
    assert_int_equal(m.memory_total, 24682416ull << 10);
    assert_int_equal(m.memory_available, 24089464ull << 10);
    assert_int_equal(m.memory_limit, 0);
    assert_int_equal(m.huge_page_bytes, 2u << 20);
    assert_string_equal(m.huge_pages, "madvise");
}

static void test_arm_with_two_kinds_of_core(void **state)
{
    (void)state;
    rvi_machine_info m;
    put("/proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd05\n\n"
                         "processor\t: 1\nCPU implementer\t: 0x41\nCPU part\t: 0xd05\n\n"
                         "processor\t: 2\nCPU implementer\t: 0x41\nCPU part\t: 0xd0b\n"
                         "processor\t: 3\nCPU implementer\t: 0x77\nCPU part\t: 0x123\n");
    put("/proc/self/status", "Cpus_allowed_list:\t0-3\n");
    for (int i = 0; i < 4; i++) {
        char list[16];
        snprintf(list, sizeof list, "%d\n", i);
        put_siblings(i, "thread_siblings_list", list); /* as older kernels call it */
    }
    rvi_machine_read(&m, root.data);
    assert_string_equal(m.cpu_name, "Cortex-A55 + Cortex-A76 + implementer 0x77 part 0x123");
    assert_string_equal(m.cpu_vendor, "ARM");
    assert_int_equal(m.n_logical, 4);
    assert_int_equal(m.n_physical, 4);
    assert_int_equal(m.smt, 1);
    assert_int_equal(m.n_caches, 0);
}

static void test_limits_of_groups(void **state)
{
    (void)state;
    rvi_machine_info m;
    put("/proc/self/status", "Cpus_allowed_list:\t0-7\n");
    put("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n");
    /* version 2: the tightest on the way up counts */
    put("/proc/self/cgroup", "0::/outer/inner\n");
    put("/sys/fs/cgroup/outer/inner/memory.max", "max\n");
    put("/sys/fs/cgroup/outer/memory.max", "2147483648\n");
    put("/sys/fs/cgroup/outer/memory.current", "1610612736\n");
    put("/sys/fs/cgroup/outer/memory.stat",
        "anon 1073741824\ninactive_file 536870912\nactive_file 7\n");
    put("/sys/fs/cgroup/outer/inner/cpu.max", "150000 100000\n");
    put("/sys/fs/cgroup/outer/cpu.max", "max 100000\n");
    rvi_machine_read(&m, root.data);
    assert_int_equal(m.memory_limit, 2147483648u);
    assert_int_equal(m.memory_available, 2147483648u - 1073741824u);
    assert_true(m.cpu_quota == 1.5);
    /* version 1, and a container that sees only the mount */
    put("/proc/self/cgroup", "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "73741824\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    rvi_machine_read(&m, root.data);
    assert_int_equal(m.memory_limit, 1073741824u);
    assert_int_equal(m.memory_available, 1000000000u);
    assert_true(m.cpu_quota == 4);
    /* "no limit" as version 1 writes it */
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    rvi_machine_read(&m, root.data);
    assert_int_equal(m.memory_limit, 0);
    assert_int_equal(m.memory_available, 8388608ull << 10);
    assert_true(m.cpu_quota == 0);
}

static void test_broken_files(void **state)
{
    (void)state;
    rvi_machine_info m;
    char line[3000];
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = 0;
    memcpy(line, "model name: \x1b[31m", 16);
    put("/proc/cpuinfo", line);
    put("/proc/self/status", "Cpus_allowed_list: 3-1,99999999999999999999999,5\n");
    put("/proc/meminfo",
        "MemTotal: -5 kB\nMemAvailable: 99999999999999999999999 kB\nMemTotal\n:::\n");
    put("/proc/self/cgroup", "nonsense\n0::/../../etc\n1:memory\n\n::\n");
    put("/sys/kernel/mm/transparent_hugepage/enabled", "[always\n");
    put_cache(0, 0, "99\n", "Data\n", "48K\n", NULL);
    put_cache(0, 1, "1\n", "Data\n", "K\n", NULL);
    put_cache(0, 2, "2\n", NULL, "99999999999999999G\n", "zzz\n");
    rvi_machine_read(&m, root.data);
    assert_null(strchr(m.cpu_name, 0x1b));
    assert_true(strlen(m.cpu_name) < sizeof m.cpu_name);
    assert_true(m.n_logical >= 1);
    assert_int_equal(m.memory_total, 0);
    assert_int_equal(m.memory_available, 0);
    assert_int_equal(m.n_caches, 0);
    assert_string_equal(m.huge_pages, "");
}

static void test_tiles(void **state)
{
    (void)state;
    /* asking twice gives the same answer */
    assert_int_equal(rvi_machine_permit_tiles(), rvi_machine_permit_tiles());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_this_machine),
        cmocka_unit_test_setup_teardown(test_nothing_is_known, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_x86_with_smt, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_arm_with_two_kinds_of_core, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_limits_of_groups, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_broken_files, set_up, tear_down),
        cmocka_unit_test(test_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
