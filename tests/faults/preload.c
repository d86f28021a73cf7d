/* Faults of one process, preloaded: clocks that leap, disks that fail, fill up, are slow, or lie.
 *
 * A file, mapped by the process and by the test, says what is wrong now (struct control below; `tests.faults` writes it).
 * It stays over restarts of the process, as a wrong clock of a host does. What struck is counted there.
 *
 * Waits until a time (sem_clockwait, pthread_cond_timedwait and their kin, clock_nanosleep) are given the time on the
 * kernel's clock: else a thread that adds 5 ms to a clock an hour ahead would sleep for an hour. A wait that has begun
 * lasts as long as it was to. All others of CPython, SQLite, epoll and poll wait for a duration, which is the same on
 * every clock. Not interposed: syscall(2) itself, timers of timerfd_create, pthread_mutex_timedlock. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { HONEST, FAILS, LIES };
enum { WALL, ELAPSED, SYNC, SLOW, FULL, READ, FAILED, SLOWED, LIED, REFUSED, FIELDS };
struct control {
    /* Set by the test: added to CLOCK_REALTIME and to the monotonic clocks (ns); how syncs go, and how long they take
     * (ns); whether there is no space. Then how often it was felt: clocks read that are wrong, syncs that failed, were
     * slow, did nothing, writes without space. */
    int64_t fields[FIELDS];
    char below[1024]; /* Disk faults strike files whose path begins like this. */
};
static struct control *control;

#define REAL(name) ({ static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name); real; })

static int64_t told(int field) {
    return control ? __atomic_load_n(&control->fields[field], __ATOMIC_RELAXED) : 0;
}
static void felt(int field) { __atomic_fetch_add(&control->fields[field], 1, __ATOMIC_RELAXED); }

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("UNERRING_FAULTS");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) control = mapped;
}

/* ---- clocks ---- */

static int64_t ahead_ns(clockid_t clock) {
    switch (clock) {
    case CLOCK_REALTIME: case CLOCK_REALTIME_COARSE: case CLOCK_TAI: return told(WALL);
    case CLOCK_MONOTONIC: case CLOCK_MONOTONIC_RAW: case CLOCK_MONOTONIC_COARSE: case CLOCK_BOOTTIME: return told(ELAPSED);
    default: return 0; /* of a process or a thread */
    }
}
static struct timespec moved(struct timespec at, int64_t by_ns) {
    int64_t ns = at.tv_nsec + by_ns % 1000000000;
    at.tv_sec += by_ns / 1000000000 + (ns >= 1000000000) - (ns < 0);
    at.tv_nsec = ns + (ns < 0 ? 1000000000 : 0) - (ns >= 1000000000 ? 1000000000 : 0);
    if (at.tv_sec < 0) at.tv_sec = at.tv_nsec = 0; /* past on any clock */
    return at;
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = REAL(clock_gettime)(clock, now);
    int64_t by_ns = result ? 0 : ahead_ns(clock);
    if (by_ns) { *now = moved(*now, by_ns); felt(READ); }
    return result;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &precise)) return -1;
    now->tv_sec = precise.tv_sec, now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *where) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (where) *where = now.tv_sec;
    return now.tv_sec;
}
int timespec_get(struct timespec *now, int base) {
    return base == TIME_UTC && !clock_gettime(CLOCK_REALTIME, now) ? base : 0;
}

/* ---- waits until a time ---- */

/* Which clock a time is of: no machine has been up since 1970. The clock of a condition variable cannot be asked for. */
static clockid_t clock_of(const struct timespec *at) { return at->tv_sec > 1000000000 ? CLOCK_REALTIME : CLOCK_MONOTONIC; }

int sem_clockwait(sem_t *restrict sem, clockid_t clock, const struct timespec *restrict at) {
    struct timespec real = moved(*at, -ahead_ns(clock));
    return REAL(sem_clockwait)(sem, clock, &real);
}
int sem_timedwait(sem_t *restrict sem, const struct timespec *restrict at) {
    return sem_clockwait(sem, CLOCK_REALTIME, at);
}
int pthread_cond_clockwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex, clockid_t clock,
                           const struct timespec *restrict at) {
    struct timespec real = moved(*at, -ahead_ns(clock));
    return REAL(pthread_cond_clockwait)(cond, mutex, clock, &real);
}
int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict at) {
    return pthread_cond_clockwait(cond, mutex, clock_of(at), at);
}
int clock_nanosleep(clockid_t clock, int flags, const struct timespec *wait, struct timespec *left) {
    if (!(flags & TIMER_ABSTIME)) return REAL(clock_nanosleep)(clock, flags, wait, left);
    struct timespec real = moved(*wait, -ahead_ns(clock));
    return REAL(clock_nanosleep)(clock, flags, &real, left);
}

/* ---- disks ---- */

static int struck(int file) {
    char link[32], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path);
    size_t below = strlen(control->below);
    return below && length >= (ssize_t)below && !memcmp(path, control->below, below);
}
static int no_space(int file) {
    /* What it says last is to be read, so its own log is on another disk. */
    if (file <= STDERR_FILENO || !told(FULL) || !struck(file)) return 0;
    felt(REFUSED);
    errno = ENOSPC;
    return 1;
}
static int synced(int file, int (*sync)(int)) {
    int64_t how = told(SYNC), slow_ns = told(SLOW);
    if ((how == HONEST && !slow_ns) || !struck(file)) return sync(file);
    if (slow_ns) {
        struct timespec wait = moved((struct timespec){0, 0}, slow_ns);
        felt(SLOWED);
        nanosleep(&wait, NULL);
    }
    if (how == HONEST) return sync(file);
    felt(how == LIES ? LIED : FAILED);
    if (how == FAILS) errno = EIO;
    return how == FAILS ? -1 : 0;
}
int fsync(int file) { return synced(file, REAL(fsync)); }
int fdatasync(int file) { return synced(file, REAL(fdatasync)); }
ssize_t write(int file, const void *bytes, size_t count) { return no_space(file) ? -1 : REAL(write)(file, bytes, count); }
ssize_t pwrite(int file, const void *bytes, size_t count, off_t at) {
    return no_space(file) ? -1 : REAL(pwrite)(file, bytes, count, at);
}
ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t at) {
    return no_space(file) ? -1 : REAL(pwrite64)(file, bytes, count, at);
}
