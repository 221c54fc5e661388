//! What is done whatever happens.

/// Does something when it is dropped: also where the work before it ends in a panic, or is never
/// begun.
pub(crate) struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> OnDrop<F> {
    pub(crate) fn new(then: F) -> OnDrop<F> {
        OnDrop(Some(then))
    }
}

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(then) = self.0.take() {
            then();
        }
    }
}
