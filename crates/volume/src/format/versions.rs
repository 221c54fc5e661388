//! Formats of a cell, by number (docs/FORMAT.md, "Versions").

/// The newest format of a cell that this program knows. A newer one is refused.
pub const FORMAT: u32 = 20;
/// The oldest format that this program writes, which the release before writes, too. An older one
/// is raised to it when the cell is opened; a later one stays until an operator has it raised
/// (docs/decisions/0048).
pub const FORMAT_KEPT: u32 = 18;
/// The first format in which the record of a volume says what comparing a mirror has found.
pub(crate) const FORMAT_COMPARED: u32 = 19;
/// The first format in which a cell may have several shards.
pub(crate) const FORMAT_SHARDS: u32 = 20;
/// The first format whose journal has version 2.
pub(crate) const FORMAT_JOURNAL_2: u32 = 8;
