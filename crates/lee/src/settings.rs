//! The settings of a cell, from `DIR/leeward.toml`, or the object of that name in its bucket. No
//! file: the defaults. An error names the file, the line, the key and the allowed values.

mod keys;

pub use keys::{CellSettings, Jobs, QualityLevel, SrrConfig, SrrEndpoint, SrrShare};

use crate::fail::{Fail, text};
use crate::locate::CellDir;
use crate::metrics::http;
use crate::place;
use leeward_auth::{SignOn, SignOnConfig};
use leeward_door::listen;
use leeward_volume::remote::{COMMIT_INTERVAL_MS, SETTINGS};
use std::path::Path;

/// A settings file is a page of text; anything larger is a mistake.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Whether there is a settings file.
///
/// # Errors
/// The store's, for a cell in a bucket.
pub fn are_there(cell: &CellDir) -> Result<bool, Fail> {
    match cell.place() {
        None => Ok(cell.settings().exists()),
        Some(place) => {
            let found = place::bucket(place)?.look(SETTINGS).map_err(|e| Fail::new(e.to_string()))?;
            Ok(found.is_some())
        }
    }
}

/// Reads and checks the settings.
///
/// # Errors
/// When the file cannot be read, or has a value that is not allowed.
pub fn load(cell: &CellDir) -> Result<CellSettings, Fail> {
    let path = cell.settings();
    if let Some(place) = cell.place() {
        let content = place::bucket(place)?.look(SETTINGS).map_err(|e| Fail::new(e.to_string()))?;
        return parse_bytes(&path, content.unwrap_or_default().into(), COMMIT_INTERVAL_MS);
    }
    let unreadable =
        |why: &str| Fail::new(format!("{}: {why}: repair the file or move it away", path.display()));
    let file = cell.within().join(SETTINGS);
    match std::fs::metadata(&file) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(CellSettings::default()),
        Ok(m) if !m.is_file() => return Err(unreadable("not a file")),
        Ok(m) if m.len() > FILE_BYTES_MAX => return Err(unreadable("larger than 1 MiB")),
        _ => (),
    }
    let content = std::fs::read(&file).map_err(|e| unreadable(&text(&e)))?;
    parse_bytes(&path, content, CellSettings::default().commit_interval_ms)
}

/// `interval`: the default time between commits.
fn parse_bytes(path: &Path, content: Vec<u8>, interval: u32) -> Result<CellSettings, Fail> {
    let content = String::from_utf8(content).map_err(|_| {
        Fail::new(format!("{}: not UTF-8 text: repair the file or move it away", path.display()))
    })?;
    let mut config = parse(path, &content)?;
    let said = toml::from_str::<toml::Table>(&content).unwrap_or_default();
    if !said.contains_key("commit-interval-ms") {
        config.commit_interval_ms = interval;
    }
    Ok(config)
}

/// The provider where people log in to the console, with its secret.
///
/// # Errors
/// The file with the secret cannot be read.
pub fn sign_on(config: &CellSettings) -> Result<Option<SignOn>, Fail> {
    let Some(provider) = &config.console_login else { return Ok(None) };
    let secret = match provider.secret_file.is_empty() {
        true => String::new(),
        false => secret_of(provider)?,
    };
    SignOn::new(provider, &secret).map(Some).map_err(Fail::new)
}

fn secret_of(provider: &SignOnConfig) -> Result<String, Fail> {
    let file = &provider.secret_file;
    let failed = |why: &str| Fail::new(format!("console-login: secret-file = {file}: {why}"));
    let content = std::fs::read_to_string(file).map_err(|e| failed(&text(&e)))?;
    match content.trim().is_empty() {
        true => Err(failed("it is empty: write there what the provider has given to this service")),
        false => Ok(content.trim().to_owned()),
    }
}

pub(crate) fn parse(path: &Path, content: &str) -> Result<CellSettings, Fail> {
    let config: CellSettings = toml::from_str(content).map_err(|e| Fail::new(explain(path, content, &e)))?;
    let addresses = config.metrics.iter().try_for_each(|text| http::parse(text).map(drop));
    let addresses_of = |key: &str, list: &[String]| {
        let read = list.iter().try_for_each(|text| listen::parse(text).map(drop));
        read.map_err(|wrong| format!("{key}: {wrong}"))
    };
    let doors = addresses_of("s3", &config.s3).and(addresses_of("http", &config.http));
    let doors = doors.and(addresses_of("listen", &config.listen));
    let addresses = addresses.map_err(|wrong| format!("metrics: {wrong}"));
    config.check().and(addresses).and(doors).map_err(|wrong| {
        let key = wrong.split([' ', '=', ':']).next().unwrap_or_default();
        let names = |l: &str| key_of(l) == Some(key) || l.trim() == format!("[[{key}]]");
        let line = content.lines().position(names).map_or(0, |i| i + 1);
        Fail::new(format!("{}: line {line}: {wrong}", path.display()))
    })?;
    Ok(config)
}

/// The place and the problem, from the parser's error.
fn explain(path: &Path, content: &str, error: &toml::de::Error) -> String {
    let what = error.message().trim().replace('\n', "; ");
    let Some(span) = error.span() else { return format!("{}: {what}", path.display()) };
    let before = &content.as_bytes()[..span.start.min(content.len())];
    let number = before.iter().filter(|b| **b == b'\n').count();
    let line = content.lines().nth(number).unwrap_or_default();
    let place = format!("{}: line {}", path.display(), number + 1);
    match key_of(line) {
        Some(key) if what.starts_with("unknown field") => {
            format!("{place}: unknown key `{key}`: allowed are {}", keys().join(", "))
        }
        Some(key) if keys().iter().any(|k| k == key) => {
            let value = line.split_once('=').map_or("", |(_, v)| v).trim();
            format!("{place}: {key} = {value} is not possible: allowed is {}", allowed(key))
        }
        _ => format!("{place}: {what}"),
    }
}

/// The key that a line of the file sets.
fn key_of(line: &str) -> Option<&str> {
    let key = line.split_once('=')?.0.trim().trim_matches('"');
    (!key.is_empty() && !key.starts_with('#')).then_some(key)
}

/// Every key there is.
fn keys() -> Vec<String> {
    let table = toml::Table::try_from(CellSettings::default()).unwrap_or_default();
    table.keys().cloned().chain(["console-login".to_owned(), "tls-users".to_owned()]).collect()
}

/// The allowed values of a key, as the check of the key reports them: tries a word, then a number,
/// that cannot be right.
fn allowed(key: &str) -> String {
    if let Err(e) = toml::from_str::<CellSettings>(&format!("{key} = \"?\""))
        && let Some((_, words)) = e.message().split_once("unknown variant `?`, expected ")
    {
        return words.trim_start_matches("one of ").replace('`', "\"");
    }
    let too_large =
        toml::from_str::<CellSettings>(&format!("{key} = {}", u32::MAX)).map(|config| config.check());
    match too_large {
        Ok(Err(wrong)) => format!("a number, {}", wrong.rsplit(": ").next().unwrap_or_default()),
        Ok(Ok(())) => "a number".into(),
        Err(e) if e.message().ends_with("a boolean") => "true or false".into(),
        Err(_) if key == "disk-cache" => "a directory, such as \"/var/cache/leeward\"".into(),
        Err(e) if e.message().ends_with("a string") => "a text in quotes".into(),
        Err(_) if ["issuer", "srr", "console-login", "tls-users"].contains(&key) => {
            format!("a table [[{key}]] or [{key}]: see docs/OPERATE.md")
        }
        Err(_) => "a list of addresses, such as [\"127.0.0.1:9547\"]".into(),
    }
}

/// The settings as a file has them.
///
/// # Errors
/// Never for settings that were read.
pub fn to_toml(config: &CellSettings) -> Result<String, Fail> {
    toml::to_string(config).map_err(|e| Fail::new(format!("the settings cannot be shown: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(content: &str) -> String {
        parse(Path::new("leeward.toml"), content).expect_err(content).to_string()
    }

    #[test]
    fn errors_name_line_key_and_what_is_allowed() {
        assert_eq!(parse(Path::new("f"), ""), Ok(CellSettings::default()));
        assert_eq!(parse(Path::new("f"), "dirty-mib = 32").map(|c| c.dirty_mib), Ok(32));
        for (content, wanted) in [
            ("\ncache-mb = 3\n", "line 2: unknown key `cache-mb`: allowed are"),
            (
                "cache-mib = \"3\"",
                "line 1: cache-mib = \"3\" is not possible: allowed is a number, 1 to 65536",
            ),
            ("cache-mib = -3", "line 1: cache-mib = -3 is not possible: allowed is a number, 1 to 65536"),
            ("# x\ncache-mib = 0", "line 2: cache-mib = 0 is out of range: 1 to 65536"),
            (
                "compression = \"zip\"",
                "line 1: compression = \"zip\" is not possible: allowed is \"lz4\" or \"none\"",
            ),
            (
                "disk-cache = 1",
                "line 1: disk-cache = 1 is not possible: allowed is a directory, such as \"/var/cache/leeward\"",
            ),
            ("fair = 1", "line 1: fair = 1 is not possible: allowed is true or false"),
            (
                "metrics = 9547",
                "line 1: metrics = 9547 is not possible: allowed is a list of addresses, such as",
            ),
            (
                "fair = true\nmetrics = [\"localhost\"]",
                "line 2: metrics: `localhost` is no address: write a port",
            ),
            ("cache-mib", "line 1: "),
            ("\n\n[cache]\nx = 1", "line 3: "),
        ] {
            let message = error(content);
            assert!(message.starts_with("leeward.toml: "), "{message}");
            assert!(message.contains(wanted), "{message}");
        }
    }

    #[test]
    fn what_is_shown_can_be_read_back() {
        let config = CellSettings { dirty_mib: 17, ..CellSettings::default() };
        let shown = to_toml(&config).expect("toml");
        assert_eq!(parse(Path::new("f"), &shown), Ok(config));
    }
}
