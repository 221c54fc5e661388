//! Memory of the process.

/// Gives whole pages back to the system that the allocator has and nobody uses. It walks through what is free, arena by arena, under the
/// arena's lock: some 0.2 ms for each MB.
#[cfg(target_env = "gnu")]
pub fn give_memory_back() {
    // SAFETY: it looks at what is free only, under the allocator's own locks.
    unsafe { libc::malloc_trim(0) };
}

/// Allocators other than glibc's do so by themselves.
#[cfg(not(target_env = "gnu"))]
pub fn give_memory_back() {}
