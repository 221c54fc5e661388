//! The pages of the documentation that say what to do: of each alert, and of each disaster.

use pulldown_cmark::{Event, Options, Parser, Tag, html};

macro_rules! pages {
    ($($name:literal: $file:literal,)*) => {
        /// Pages by name.
        pub const PAGES: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../../../../docs/", $file))),)*
        ];
    };
}

pages! {
    "LeewardBackupBad": "runbooks/LeewardBackupBad.md",
    "LeewardBroken": "runbooks/LeewardBroken.md",
    "LeewardCleaningBehind": "runbooks/LeewardCleaningBehind.md",
    "LeewardClockSet": "runbooks/LeewardClockSet.md",
    "LeewardCommitSlow": "runbooks/LeewardCommitSlow.md",
    "LeewardCopyLate": "runbooks/LeewardCopyLate.md",
    "LeewardDamage": "runbooks/LeewardDamage.md",
    "LeewardDown": "runbooks/LeewardDown.md",
    "LeewardJournalLong": "runbooks/LeewardJournalLong.md",
    "LeewardMachinesSilent": "runbooks/LeewardMachinesSilent.md",
    "LeewardMemoryFull": "runbooks/LeewardMemoryFull.md",
    "LeewardMirrorBad": "runbooks/LeewardMirrorBad.md",
    "LeewardNoStandby": "runbooks/LeewardNoStandby.md",
    "LeewardPoolAway": "runbooks/LeewardPoolAway.md",
    "LeewardQueueLong": "runbooks/LeewardQueueLong.md",
    "LeewardQuotasFull": "runbooks/LeewardQuotasFull.md",
    "LeewardRestarts": "runbooks/LeewardRestarts.md",
    "LeewardScrubLate": "runbooks/LeewardScrubLate.md",
    "LeewardServersChange": "runbooks/LeewardServersChange.md",
    "LeewardSlow": "runbooks/LeewardSlow.md",
    "LeewardSnapshotsLate": "runbooks/LeewardSnapshotsLate.md",
    "LeewardSpaceLow": "runbooks/LeewardSpaceLow.md",
    "LeewardSpaceSoonLow": "runbooks/LeewardSpaceSoonLow.md",
    "LeewardStoreErrors": "runbooks/LeewardStoreErrors.md",
    "LeewardStoreFailing": "runbooks/LeewardStoreFailing.md",
    "LeewardStoreSlow": "runbooks/LeewardStoreSlow.md",
    "LeewardTierFull": "runbooks/LeewardTierFull.md",
    "LeewardTrimBehind": "runbooks/LeewardTrimBehind.md",
    "LeewardUpkeepBehind": "runbooks/LeewardUpkeepBehind.md",
    "a disk": "disasters/disk.md",
    "a lost password": "disasters/password.md",
    "a ransomware": "disasters/ransomware.md",
    "a wrong removal": "disasters/removed.md",
    "a server": "disasters/server.md",
    "a site": "disasters/site.md",
}

/// The title and the text of a page, as HTML. `None`: there is no such page.
pub fn page(name: &str) -> Option<(String, String)> {
    let text = PAGES.iter().find(|(of, _)| *of == name)?.1;
    let (first, rest) = text.split_once('\n')?;
    let mut out = String::new();
    // links lead to files that are not here, and HTML is text
    let events = Parser::new_ext(rest, Options::ENABLE_TABLES).filter_map(|event| match event {
        Event::Start(Tag::Link { .. }) | Event::End(pulldown_cmark::TagEnd::Link) => None,
        Event::Html(text) | Event::InlineHtml(text) => Some(Event::Text(text)),
        event => Some(event),
    });
    html::push_html(&mut out, events);
    // what is wider than the page is scrolled, also with the keyboard
    let out = out.replace("<pre>", "<pre tabindex=\"0\">");
    Some((first.trim_start_matches('#').trim().to_owned(), out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_runbook_and_every_disaster_is_there() {
        let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let mut files = 0;
        for dir in ["runbooks", "disasters"] {
            for entry in std::fs::read_dir(docs.join(dir)).expect("pages") {
                let path = entry.expect("a page").path();
                if path.ends_with("README.md") {
                    continue;
                }
                let text = std::fs::read_to_string(&path).expect("text");
                assert!(PAGES.iter().any(|(_, page)| *page == text), "{} is not listed", path.display());
                files += 1;
            }
        }
        assert_eq!(files, PAGES.len());
    }

    #[test]
    fn a_page_is_shown_without_links_and_scripts() {
        for (name, _) in PAGES {
            let (title, html) = page(name).expect("a page");
            assert!(!title.is_empty() && html.contains("<p>") && html.contains("<code>"), "{name}");
            assert!(!html.contains("<a ") && !html.contains("<script"), "{name}: {html}");
        }
        assert!(page("LeewardNothing").is_none());
    }
}
