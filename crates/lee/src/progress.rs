//! Shows the progress of a long command.

use crate::output::Format;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use leeward_volume::admin::Progress;
use std::io::IsTerminal;

/// A progress bar on standard error, if that is a terminal.
pub struct Bar(ProgressBar);

impl Bar {
    /// A new bar, hidden with `--json`.
    pub fn new(format: Format) -> Bar {
        let watched = format == Format::Text && std::io::stderr().is_terminal();
        let target = if watched { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        Bar(ProgressBar::with_draw_target(None, target))
    }

    /// Shows the progress.
    pub fn show(&self, progress: &Progress) {
        let template = match progress.total {
            0 => "{msg} {spinner} {human_pos}",
            _ => "{msg} [{bar:30}] {human_pos}/{human_len} {eta}",
        };
        self.0.set_message(progress.phase.clone());
        // The templates are right, or the bar is plainer.
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.0.set_style(style);
        }
        if progress.total > 0 {
            self.0.set_length(progress.total);
        }
        self.0.set_position(progress.done);
    }

    /// Removes the bar.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}
