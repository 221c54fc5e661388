// Lets a program that knows one mount of a cell use two of them in turn, for conformance suites:
//   LD_PRELOAD=two-mounts.so TWO_MOUNTS=/one:/two TWO_MOUNTS_LOG=FILE PROGRAM
// The two paths have the same length. A call by a path below one of them goes to the other mount than the call before it, one in
// four to the same: so what is done in pairs is not always done at the same mounts.
// With TWO_MOUNTS_FILES=1 each regular file is opened at both, and each call by an open file goes to them in turn, too.
// Both show the number of the device that the first has. At the end of the process the log gets a line: how many calls went to the first mount and to the second.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#define FILES_MAX 1024

static char mounts[2][PATH_MAX];
static size_t length;
static int both_files;
static int twins[FILES_MAX]; // by open file: the same at the other mount; 0: none
static dev_t devices[2];
static unsigned long numbers = 1, used[2];
static int last; // the mount of the call before

__attribute__((constructor)) static void begin(void) {
  const char *named = getenv("TWO_MOUNTS"), *colon = named ? strchr(named, ':') : NULL;
  if (!colon || (size_t)(colon - named) != strlen(colon + 1) || strlen(colon + 1) >= PATH_MAX) {
    fputs("two-mounts: TWO_MOUNTS is to name two paths of the same length\n", stderr);
    _exit(99);
  }
  length = strlen(colon + 1);
  memcpy(mounts[0], named, length);
  memcpy(mounts[1], colon + 1, length);
  both_files = getenv("TWO_MOUNTS_FILES") != NULL;
  for (int i = 0; i < 2; i++) {
    struct stat64 attr;
    int (*look)(const char *, struct stat64 *) = dlsym(RTLD_NEXT, "lstat64");
    if (look && !look(mounts[i], &attr)) devices[i] = attr.st_dev;
  }
}

__attribute__((destructor)) static void end(void) {
  const char *log = getenv("TWO_MOUNTS_LOG");
  FILE *file = log ? fopen(log, "a") : NULL;
  if (file) {
    fprintf(file, "%lu %lu\n", used[0], used[1]);
    fclose(file);
  }
}

static void *next(const char *name) {
  void *found = dlsym(RTLD_NEXT, name);
  if (!found) abort();
  return found;
}

static int is_below(const char *path) {
  unsigned char resident;
  // suites pass addresses where there is nothing
  if (mincore((void *)((uintptr_t)path & ~(uintptr_t)4095), 1, &resident)) return 0;
  for (int i = 0; i < 2; i++)
    if (!strncmp(path, mounts[i], length) && (path[length] == '/' || !path[length])) return 1;
  return 0;
}

// The mount of the next call, if it is about one.
static int turn(int is_about) {
  if (!is_about) return 0;
  numbers = numbers * 6364136223846793005 + 1442695040888963407;
  if (numbers >> 62) last = !last;
  return last;
}

// The path at that mount, if it is below one.
static const char *at(int mount, const char *path, char *room) {
  if (!is_below(path) || strlen(path) >= 2 * PATH_MAX) return path;
  __atomic_fetch_add(&used[mount], 1, __ATOMIC_RELAXED);
  strcpy(room, path);
  memcpy(room, mounts[mount], length);
  return room;
}

#define ROOM char room[2 * PATH_MAX]
// A function of a path, which is its argument number N of what is passed on.
#define BY_PATH(kind, name, parameters, pass) \
  kind name parameters { \
    kind(*real) parameters = next(#name); \
    ROOM; \
    path = at(turn(is_below(path)), path, room); \
    return real pass; \
  }
// A function of two paths, at one mount.
#define BY_TWO(name, parameters, pass) \
  int name parameters { \
    int(*real) parameters = next(#name), mount = turn(is_below(from) || is_below(to)); \
    ROOM; \
    char other[2 * PATH_MAX]; \
    from = at(mount, from, room); \
    to = at(mount, to, other); \
    return real pass; \
  }

BY_PATH(int, access, (const char *path, int mode), (path, mode))
BY_PATH(int, chdir, (const char *path), (path))
BY_PATH(int, chmod, (const char *path, mode_t mode), (path, mode))
BY_PATH(int, chown, (const char *path, uid_t uid, gid_t gid), (path, uid, gid))
BY_PATH(int, lchown, (const char *path, uid_t uid, gid_t gid), (path, uid, gid))
BY_PATH(int, mkdir, (const char *path, mode_t mode), (path, mode))
BY_PATH(int, mkfifo, (const char *path, mode_t mode), (path, mode))
BY_PATH(int, mknod, (const char *path, mode_t mode, dev_t dev), (path, mode, dev))
BY_PATH(int, rmdir, (const char *path), (path))
BY_PATH(int, unlink, (const char *path), (path))
BY_PATH(int, truncate, (const char *path, off_t size), (path, size))
BY_PATH(int, truncate64, (const char *path, off64_t size), (path, size))
BY_PATH(int, statfs64, (const char *path, struct statfs64 *of), (path, of))
BY_PATH(long, pathconf, (const char *path, int name), (path, name))
BY_PATH(ssize_t, readlink, (const char *path, char *to, size_t size), (path, to, size))
BY_PATH(DIR *, opendir, (const char *path), (path))
BY_PATH(int, symlink, (const char *target, const char *path), (target, path))
BY_PATH(int, symlinkat, (const char *target, int dir, const char *path), (target, dir, path))
BY_PATH(int, unlinkat, (int dir, const char *path, int flags), (dir, path, flags))
BY_PATH(int, fchmodat, (int dir, const char *path, mode_t mode, int flags), (dir, path, mode, flags))
BY_PATH(int, fchownat, (int dir, const char *path, uid_t uid, gid_t gid, int flags), (dir, path, uid, gid, flags))
BY_PATH(int, utimensat, (int dir, const char *path, const struct timespec times[2], int flags), (dir, path, times, flags))
BY_TWO(rename, (const char *from, const char *to), (from, to))
BY_TWO(link, (const char *from, const char *to), (from, to))
BY_TWO(renameat, (int a, const char *from, int b, const char *to), (a, from, b, to))
BY_TWO(linkat, (int a, const char *from, int b, const char *to, int flags), (a, from, b, to, flags))

// Both are one file system.
#define ATTRIBUTES(name, parameters, pass) \
  int name parameters { \
    int(*real) parameters = next(#name); \
    ROOM; \
    path = at(turn(is_below(path)), path, room); \
    int result = real pass; \
    if (!result && attr->st_dev == devices[1]) attr->st_dev = devices[0]; \
    return result; \
  }
ATTRIBUTES(stat, (const char *path, struct stat *attr), (path, attr))
ATTRIBUTES(lstat, (const char *path, struct stat *attr), (path, attr))
ATTRIBUTES(stat64, (const char *path, struct stat64 *attr), (path, attr))
ATTRIBUTES(lstat64, (const char *path, struct stat64 *attr), (path, attr))
ATTRIBUTES(fstatat, (int dir, const char *path, struct stat *attr, int flags), (dir, path, attr, flags))
ATTRIBUTES(fstatat64, (int dir, const char *path, struct stat64 *attr, int flags), (dir, path, attr, flags))

int bind(int socket, const struct sockaddr *to, socklen_t size) {
  int (*real)(int, const struct sockaddr *, socklen_t) = next("bind");
  struct sockaddr_un here;
  ROOM;
  if (to->sa_family != AF_UNIX || size > sizeof here) return real(socket, to, size);
  memset(&here, 0, sizeof here);
  memcpy(&here, to, size);
  memcpy(here.sun_path, at(turn(is_below(here.sun_path)), here.sun_path, room), strlen(here.sun_path));
  return real(socket, (struct sockaddr *)&here, size);
}

// Open files

static int has_twin(int fd) { return fd >= 0 && fd < FILES_MAX && twins[fd]; }

static int opened(int fd, const char *path, int mount, int flags) {
  struct stat64 attr;
  int (*real)(const char *, int, ...) = next("open64"), (*look)(int, struct stat64 *) = next("fstat64");
  ROOM;
  if (both_files && fd >= 0 && fd < FILES_MAX && is_below(path) && !look(fd, &attr) && S_ISREG(attr.st_mode)) {
    int twin = real(at(!mount, path, room), flags & ~(O_CREAT | O_EXCL | O_TRUNC));
    twins[fd] = twin < 0 ? 0 : twin;
  }
  return fd;
}

#define OPEN(name) \
  int name(const char *path, int flags, ...) { \
    int (*real)(const char *, int, ...) = next(#name), mount = turn(is_below(path)); \
    ROOM; \
    va_list more; \
    va_start(more, flags); \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
    va_end(more); \
    return opened(real(at(mount, path, room), flags, mode), path, mount, flags); \
  }
OPEN(open)
OPEN(open64)

#define OPEN_AT(name) \
  int name(int dir, const char *path, int flags, ...) { \
    int (*real)(int, const char *, int, ...) = next(#name), mount = turn(is_below(path)); \
    ROOM; \
    va_list more; \
    va_start(more, flags); \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
    va_end(more); \
    return opened(real(dir, at(mount, path, room), flags, mode), path, mount, flags); \
  }
OPEN_AT(openat)
OPEN_AT(openat64)

int close(int fd) {
  int (*real)(int) = next("close");
  if (has_twin(fd)) {
    real(twins[fd]);
    twins[fd] = 0;
  }
  return real(fd);
}

// The file at that mount.
static int file(int mount, int fd) {
  if (!has_twin(fd)) return fd;
  __atomic_fetch_add(&used[mount], 1, __ATOMIC_RELAXED);
  return mount ? twins[fd] : fd;
}

#define BY_FILE(kind, name, parameters, pass) \
  kind name parameters { \
    kind(*real) parameters = next(#name); \
    fd = file(turn(has_twin(fd)), fd); \
    return real pass; \
  }

BY_FILE(ssize_t, pread, (int fd, void *to, size_t size, off_t offset), (fd, to, size, offset))
BY_FILE(ssize_t, pread64, (int fd, void *to, size_t size, off64_t offset), (fd, to, size, offset))
BY_FILE(ssize_t, pwrite, (int fd, const void *from, size_t size, off_t offset), (fd, from, size, offset))
BY_FILE(ssize_t, pwrite64, (int fd, const void *from, size_t size, off64_t offset), (fd, from, size, offset))
BY_FILE(int, ftruncate, (int fd, off_t size), (fd, size))
BY_FILE(int, ftruncate64, (int fd, off64_t size), (fd, size))
BY_FILE(int, fallocate, (int fd, int mode, off_t offset, off_t size), (fd, mode, offset, size))
BY_FILE(int, posix_fallocate, (int fd, off_t offset, off_t size), (fd, offset, size))
BY_FILE(int, posix_fadvise, (int fd, off_t offset, off_t size, int advice), (fd, offset, size, advice))
BY_FILE(int, fsync, (int fd), (fd))
BY_FILE(int, fdatasync, (int fd), (fd))

int statx(int fd, const char *path, int flags, unsigned mask, struct statx *attr) {
  int (*real)(int, const char *, int, unsigned, struct statx *) = next("statx");
  int mount = turn(has_twin(fd) || is_below(path));
  ROOM;
  int result = real(file(mount, fd), at(mount, path, room), flags, mask, attr);
  if (!result && makedev(attr->stx_dev_major, attr->stx_dev_minor) == devices[1]) {
    attr->stx_dev_major = major(devices[0]);
    attr->stx_dev_minor = minor(devices[0]);
  }
  return result;
}

#define ATTRIBUTES_OF_FILE(name, kind) \
  int name(int fd, struct kind *attr) { \
    int (*real)(int, struct kind *) = next(#name); \
    int result = real(file(turn(has_twin(fd)), fd), attr); \
    if (!result && attr->st_dev == devices[1]) attr->st_dev = devices[0]; \
    return result; \
  }
ATTRIBUTES_OF_FILE(fstat, stat)
ATTRIBUTES_OF_FILE(fstat64, stat64)

// Maps and copies end at what the kernel takes for the size of the file, and ask nobody (docs/SEMANTICS.md, "Asynchronous
// I/O"). So a program that shares a file asks for that before.
static int sized(int mount, int fd) {
  int (*look)(int, struct stat64 *) = next("fstat64");
  struct stat64 attr;
  if (has_twin(fd)) look(mount ? twins[fd] : fd, &attr);
  return file(mount, fd);
}

#define MAP(name, offset_of) \
  void *name(void *where, size_t size, int protection, int flags, int fd, offset_of offset) { \
    void *(*real)(void *, size_t, int, int, int, offset_of) = next(#name); \
    if (!(flags & MAP_ANONYMOUS)) fd = sized(turn(has_twin(fd)), fd); \
    return real(where, size, protection, flags, fd, offset); \
  }
MAP(mmap, off_t)
MAP(mmap64, off64_t)

ssize_t sendfile64(int to, int fd, off64_t *offset, size_t size) {
  ssize_t (*real)(int, int, off64_t *, size_t) = next("sendfile64");
  return real(to, sized(turn(has_twin(fd)), fd), offset, size);
}

// Copies have both ends at one mount.
ssize_t copy_file_range(int from, off64_t *from_offset, int to, off64_t *to_offset, size_t size, unsigned flags) {
  ssize_t (*real)(int, off64_t *, int, off64_t *, size_t, unsigned) = next("copy_file_range");
  int mount = turn(has_twin(from) || has_twin(to));
  return real(sized(mount, from), from_offset, sized(mount, to), to_offset, size, flags);
}

long syscall(long number, ...) {
  static long (*real)(long, ...);
  long a[6];
  va_list more;
  if (!real) real = next("syscall");
  va_start(more, number);
  for (int i = 0; i < 6; i++) a[i] = va_arg(more, long);
  va_end(more);
  if (number == SYS_copy_file_range) {
    int mount = turn(has_twin((int)a[0]) || has_twin((int)a[2]));
    a[0] = sized(mount, (int)a[0]);
    a[2] = sized(mount, (int)a[2]);
  }
  return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
