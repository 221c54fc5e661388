//! Memory of the process.

/// Bounds the arenas of the allocator: one for each processor, but at least four. What is free in
/// one cannot be used by threads of another, and by default glibc makes eight for each processor:
/// of 1,030 MB that a busy server of two processors had, 290 were in use. To be called before
/// threads are made.
#[cfg(target_env = "gnu")]
pub fn limit_arenas() {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    // SAFETY: a number that the allocator takes under its own locks, or refuses.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, processors.max(4) as libc::c_int) };
}

/// Does nothing: allocators other than glibc's have settings of their own.
#[cfg(not(target_env = "gnu"))]
pub fn limit_arenas() {}

/// Makes the allocator keep memory that is free, so that buffers are used again. By default glibc
/// gives large pieces, and what is free at the end of an arena, back to the system at once. The
/// next buffer is then pages that the kernel has to clear: a quarter of the processor time of a
/// stream through pipes and connections. For processes that serve; they call [`give_memory_back`]
/// when there is little to do.
#[cfg(target_env = "gnu")]
pub fn keep_memory() {
    /// Pieces that are longer are mapped one by one.
    const MAPPED_BYTES: libc::c_int = 4 << 20;
    /// What an arena keeps at its end.
    const KEPT_BYTES: libc::c_int = 16 << 20;
    // SAFETY: numbers that the allocator takes under its own locks, or refuses.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
    }
}

/// Does nothing: allocators other than glibc's have settings of their own.
#[cfg(not(target_env = "gnu"))]
pub fn keep_memory() {}

/// Gives whole pages that the allocator has and nobody uses back to the system. It walks through
/// free memory, arena by arena, under the arena's lock: some 0.2 ms for each MB.
#[cfg(target_env = "gnu")]
pub fn give_memory_back() {
    // SAFETY: it looks at free memory only, under the allocator's own locks.
    unsafe { libc::malloc_trim(0) };
}

/// Does nothing: allocators other than glibc's do so by themselves.
#[cfg(not(target_env = "gnu"))]
pub fn give_memory_back() {}
