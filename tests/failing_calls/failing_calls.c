/* Preloaded library in which the n-th system call on files below a folder fails, or, if the error
 * is ENOMEM, the n-th allocation of at least 1 MiB.
 *
 * A process arms it for itself, so that a warm interpreter can fork a child for each n.
 */
#define _GNU_SOURCE
#define LARGE (1 << 20)
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char below[PATH_MAX];
static char first_failed[64];
static char log_path[PATH_MAX];
static size_t below_length;
static long fail_at;
static int fail_error, fail_onwards;
static atomic_long seen;
static atomic_int armed;

void failing_calls_arm(const char *folder, long at, int error, int onwards)
{
    snprintf(below, sizeof below, "%s", folder);
    below_length = strlen(below);
    fail_at = at;
    fail_error = error;
    fail_onwards = onwards;
    first_failed[0] = 0;
    atomic_store(&seen, 0);
    atomic_store(&armed, 1);
}

void failing_calls_disarm(void)
{
    atomic_store(&armed, 0);
}

void failing_calls_log(const char *path)
{
    snprintf(log_path, sizeof log_path, "%s", path);
}

/* The log is written by raw system calls, which this library does not see. */
static void write_log(const char *call)
{
    if (!log_path[0])
        return;
    long file = syscall(SYS_openat, AT_FDCWD, log_path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (file >= 0) {
        syscall(SYS_write, file, call, strlen(call));
        syscall(SYS_write, file, "\n", 1);
        syscall(SYS_close, file);
    }
}

static int counts(const char *path)
{
    return strncmp(path, below, below_length) == 0 &&
           (path[below_length] == '/' || path[below_length] == 0);
}

static int fails(const char *call)
{
    long number = atomic_fetch_add(&seen, 1) + 1;
    if (number != fail_at && !(fail_onwards && number > fail_at))
        return 0;
    if (!first_failed[0]) {
        snprintf(first_failed, sizeof first_failed, "%s", call);
        write_log(call);
    }
    errno = fail_error;
    return 1;
}

static int linked(const char *link, char *path)
{
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return 1;
}

/* Returns whether a call on files can be the one that fails. */
static int on_files(void)
{
    return atomic_load(&armed) && fail_error != ENOMEM;
}

static int path_fails(const char *call, int folder, const char *path)
{
    char link[64], whole[2 * PATH_MAX];
    int before = errno, failed;
    if (!on_files())
        return 0;
    if (path[0] == '/') {
        failed = counts(path) && fails(call);
    } else {
        if (folder == AT_FDCWD)
            snprintf(link, sizeof link, "/proc/self/cwd");
        else
            snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        failed = 0;
        if (linked(link, whole)) {
            size_t length = strlen(whole);
            snprintf(whole + length, sizeof whole - length, "/%s", path);
            failed = counts(whole) && fails(call);
        }
    }
    if (!failed)
        errno = before;
    return failed;
}

static int file_fails(const char *call, int file)
{
    char link[64], path[PATH_MAX];
    int before = errno, failed;
    if (!on_files())
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    failed = linked(link, path) && counts(path) && fails(call);
    if (!failed)
        errno = before;
    return failed;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
/* These errors cannot be the result of a call that only names files. */
#define NAMES(call, folder, path) (fail_error != EINTR && path_fails(call, folder, path))

static mode_t mode_of(int flags, va_list rest)
{
    return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(rest, mode_t) : 0;
}

#define OPEN(name)                                                      \
    int name(const char *path, int flags, ...)                          \
    {                                                                   \
        va_list rest;                                                   \
        va_start(rest, flags);                                          \
        mode_t mode = mode_of(flags, rest);                             \
        va_end(rest);                                                   \
        if (path_fails("open", AT_FDCWD, path))                         \
            return -1;                                                  \
        return REAL(name)(path, flags, mode);                           \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                    \
    int name(int folder, const char *path, int flags, ...)              \
    {                                                                   \
        va_list rest;                                                   \
        va_start(rest, flags);                                          \
        mode_t mode = mode_of(flags, rest);                             \
        va_end(rest);                                                   \
        if (path_fails("open", folder, path))                           \
            return -1;                                                  \
        return REAL(name)(folder, path, flags, mode);                   \
    }
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name)                                                     \
    FILE *name(const char *path, const char *mode)                      \
    {                                                                   \
        if (path_fails("open", AT_FDCWD, path))                         \
            return NULL;                                                \
        return REAL(name)(path, mode);                                  \
    }
FOPEN(fopen)
FOPEN(fopen64)

#define ON_FILE(type, name, call, file, parameters, arguments)          \
    type name parameters                                                \
    {                                                                   \
        if (file_fails(call, file))                                     \
            return -1;                                                  \
        return REAL(name) arguments;                                    \
    }

/* A full disk takes a part of what is written before it fails. */
ssize_t write(int file, const void *content, size_t length)
{
    if (file_fails("write", file)) {
        if (fail_error == ENOSPC && length > 1)
            return REAL(write)(file, content, length / 2);
        return -1;
    }
    return REAL(write)(file, content, length);
}
ON_FILE(ssize_t, writev, "write", f, (int f, const struct iovec *b, int n), (f, b, n))
ON_FILE(ssize_t, pwrite, "write", f, (int f, const void *b, size_t n, off_t o), (f, b, n, o))
ON_FILE(ssize_t, pwrite64, "write", f, (int f, const void *b, size_t n, off64_t o), (f, b, n, o))
ON_FILE(ssize_t, pwritev, "write", f, (int f, const struct iovec *b, int n, off_t o), (f, b, n, o))
ON_FILE(int, flock, "flock", f, (int f, int operation), (f, operation))
ON_FILE(int, fsync, "fsync", f, (int f), (f))
ON_FILE(int, fdatasync, "fsync", f, (int f), (f))
ON_FILE(int, ftruncate, "truncate", f, (int f, off_t n), (f, n))
ON_FILE(int, ftruncate64, "truncate", f, (int f, off64_t n), (f, n))

#define ON_NAME(name, call, folder, path, parameters, arguments)        \
    int name parameters                                                 \
    {                                                                   \
        if (NAMES(call, folder, path))                                  \
            return -1;                                                  \
        return REAL(name) arguments;                                    \
    }
ON_NAME(rename, "rename", AT_FDCWD, b, (const char *a, const char *b), (a, b))
ON_NAME(renameat, "rename", e, b, (int d, const char *a, int e, const char *b), (d, a, e, b))
ON_NAME(link, "link", AT_FDCWD, b, (const char *a, const char *b), (a, b))
ON_NAME(linkat, "link", e, b, (int d, const char *a, int e, const char *b, int f), (d, a, e, b, f))
ON_NAME(unlink, "unlink", AT_FDCWD, a, (const char *a), (a))
ON_NAME(unlinkat, "unlink", d, a, (int d, const char *a, int f), (d, a, f))
ON_NAME(rmdir, "unlink", AT_FDCWD, a, (const char *a), (a))
ON_NAME(mkdir, "mkdir", AT_FDCWD, a, (const char *a, mode_t m), (a, m))
ON_NAME(mkdirat, "mkdir", d, a, (int d, const char *a, mode_t m), (d, a, m))

/* Reading fails with an error of the disk, or is interrupted. */
#define ON_READ(name, file, parameters, arguments)                      \
    ssize_t name parameters                                             \
    {                                                                   \
        if ((fail_error == EIO || fail_error == EINTR) && file_fails("read", file)) \
            return -1;                                                  \
        return REAL(name) arguments;                                    \
    }
ON_READ(read, f, (int f, void *b, size_t n), (f, b, n))
ON_READ(readv, f, (int f, const struct iovec *b, int n), (f, b, n))
ON_READ(pread, f, (int f, void *b, size_t n, off_t o), (f, b, n, o))
ON_READ(pread64, f, (int f, void *b, size_t n, off64_t o), (f, b, n, o))
ON_READ(preadv, f, (int f, const struct iovec *b, int n, off_t o), (f, b, n, o))

/* Looking up a file fails for lack of permission or with an error of the disk only. */
#define LOOKS (fail_error == EIO || fail_error == EACCES)

#define ON_LOOK(name, folder, path, parameters, arguments)              \
    int name parameters                                                 \
    {                                                                   \
        if (LOOKS && path_fails("stat", folder, path))                  \
            return -1;                                                  \
        return REAL(name) arguments;                                    \
    }
ON_LOOK(stat, AT_FDCWD, a, (const char *a, struct stat *s), (a, s))
ON_LOOK(stat64, AT_FDCWD, a, (const char *a, struct stat64 *s), (a, s))
ON_LOOK(lstat, AT_FDCWD, a, (const char *a, struct stat *s), (a, s))
ON_LOOK(lstat64, AT_FDCWD, a, (const char *a, struct stat64 *s), (a, s))
ON_LOOK(fstatat, d, a, (int d, const char *a, struct stat *s, int f), (d, a, s, f))
ON_LOOK(fstatat64, d, a, (int d, const char *a, struct stat64 *s, int f), (d, a, s, f))

DIR *opendir(const char *path)
{
    return NAMES("opendir", AT_FDCWD, path) ? NULL : REAL(opendir)(path);
}

DIR *fdopendir(int file)
{
    return fail_error != EINTR && file_fails("opendir", file) ? NULL : REAL(fdopendir)(file);
}

/* A folder that was opened fails only with an error of the disk. */
#define READDIR(name, type)                                             \
    type *name(DIR *folder)                                             \
    {                                                                   \
        if (fail_error == EIO && file_fails("readdir", dirfd(folder)))  \
            return NULL;                                                \
        return REAL(name)(folder);                                      \
    }
READDIR(readdir, struct dirent)
READDIR(readdir64, struct dirent64)

/* The C library's own names for its functions: dlsym allocates. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static int allocation_fails(size_t size)
{
    return size >= LARGE && atomic_load(&armed) && fail_error == ENOMEM && fails("allocation");
}

void *malloc(size_t size)
{
    return allocation_fails(size) ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return allocation_fails(count * size) ? NULL : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    return allocation_fails(size) ? NULL : __libc_realloc(old, size);
}

int posix_memalign(void **result, size_t alignment, size_t size)
{
    if (allocation_fails(size))
        return ENOMEM;
    *result = __libc_memalign(alignment, size);
    return *result ? 0 : ENOMEM;
}
