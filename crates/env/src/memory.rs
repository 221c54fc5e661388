//! Memory of the process.

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
