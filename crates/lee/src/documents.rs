//! Tests that code in the documents names commands, options and settings that there are: of each
//! line the commands of this machine, up to a redirection.

use crate::args::Cli;
use crate::settings;
use clap::CommandFactory;
use clap::error::ErrorKind;
use std::path::{Path, PathBuf};

/// Pages of what was.
const OLD: [&str; 2] = ["CHANGELOG.md", "decisions"];

/// All documents, with their text.
fn documents() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    let mut dirs = vec![root.join("docs")];
    let mut pages = vec![root.join("README.md")];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).expect("a directory").flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            match path.is_dir() {
                _ if OLD.iter().any(|old| name == *old) => (),
                true => dirs.push(path),
                false if path.extension().is_some_and(|ext| ext == "md") => pages.push(path),
                false => (),
            }
        }
    }
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("a page");
        found.push((page, text));
    }
    assert!(found.len() > 20, "the documents");
    found
}

/// The code in a page: in fences, or indented by four after an empty line.
fn blocks(text: &str) -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> = Vec::new();
    let (mut is_fenced, mut is_code, mut was_empty) = (false, false, true);
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            (is_fenced, is_code) = (!is_fenced, false);
            if is_fenced {
                all.push(Vec::new());
            }
            continue;
        }
        let code = line.strip_prefix("    ").filter(|_| !is_fenced && (is_code || was_empty));
        match (is_fenced, code) {
            (true, _) => all.last_mut().expect("begun").push(line.to_owned()),
            (false, Some(code)) => {
                if !std::mem::replace(&mut is_code, true) {
                    all.push(Vec::new());
                }
                all.last_mut().expect("begun").push(code.to_owned());
            }
            (false, None) => is_code &= line.is_empty(),
        }
        was_empty = line.trim().is_empty();
    }
    all
}

/// The words of each command of a line of a shell; what a command prints counts as a word.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    let (mut word, mut quote, mut depth) = (String::new(), None, 0);
    let mut letters = line.trim_start().trim_start_matches("$ ").chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            (_, Some(open)) if letter == open => quote = None,
            (_, Some(_)) => word.push(letter),
            ('\'' | '"', None) => quote = Some(letter),
            ('$', None) if letters.peek() == Some(&'(') => depth += 1,
            (')', None) if depth > 0 => {
                depth -= 1;
                word.push('1');
            }
            _ if depth > 0 => (),
            ('#', None) if word.is_empty() => break,
            ('>' | '<', None) => {
                word = word.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned(); // `2>` is one sign
                break;
            }
            (';' | '|' | '&', None) => {
                let last = all.last_mut().expect("one");
                last.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
                all.push(Vec::new());
            }
            (' ', None) => {
                all.last_mut().expect("one").extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
            }
            _ => word.push(letter),
        }
    }
    all.last_mut().expect("one").extend((!word.is_empty()).then_some(word));
    all
}

/// The words after `lee`, where a command is that; none for those that only name what may stand
/// there, as in `lee COMMAND`.
fn of_lee(command: &[String]) -> Option<Vec<String>> {
    let is_before = |word: &&String| word.contains('=') || *word == "sudo" || *word == "time";
    let words: Vec<String> = command.iter().skip_while(is_before).cloned().collect();
    let is_lee = words.first().is_some_and(|word| word == "lee" || word.ends_with("/lee"));
    let names_one = words.get(1).is_some_and(|word| word.chars().any(char::is_lowercase));
    (is_lee
        && names_one
        && !words.iter().any(|word| word.starts_with('[') || word.ends_with("...") || word.contains("%s")))
    .then_some(words)
}

#[test]
fn documents_name_commands_that_there_are() {
    let (mut wrong, mut right) = (Vec::new(), 0);
    for (page, text) in documents() {
        let lines: Vec<String> = blocks(&text).concat();
        let joined = lines.join("\n").replace("\\\n", " ");
        for words in joined.lines().flat_map(commands).filter_map(|command| of_lee(&command)) {
            match Cli::command().try_get_matches_from(&words) {
                Ok(_) => right += 1,
                Err(e) if matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
                    right += 1
                }
                Err(e) => {
                    let why = e.to_string();
                    let name = page.file_name().unwrap_or_default().display();
                    wrong.push(format!("{name}: {}: {}", words.join(" "), why.lines().next().unwrap_or("")));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(right > 200, "only {right} commands were found");
}

#[test]
fn documents_name_settings_that_there_are() {
    let is_setting = |line: &String| {
        let name = line.split_once(" = ").map(|(name, _)| name);
        let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.\"@".contains(c));
        line.starts_with('[') || line.is_empty() || line.starts_with('#') || name.is_some_and(is_name)
    };
    let (mut wrong, mut right) = (Vec::new(), 0);
    for (page, text) in documents() {
        for block in blocks(&text).iter().filter(|block| block.iter().any(|line| line.contains(" = "))) {
            let is_of_settings = block.first().is_some_and(is_setting) && !block[0].contains("()");
            if !is_of_settings || page.ends_with("FORMAT.md") {
                continue;
            }
            match settings::parse(&page, &block.join("\n")) {
                Ok(_) => right += 1,
                Err(e) => wrong.push(format!("{e}\n{}", block.join("\n"))),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(right > 3, "only {right} were found");
}
