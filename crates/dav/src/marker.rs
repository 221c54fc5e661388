//! Performance markers: the progress reports of a third-party copy, exactly in the form that
//! clients parse: fixed offsets, a space after each colon. Some servers indent the lines; clients
//! that accept that accept these, too.

use std::fmt::Write as _;
use std::net::SocketAddr;

/// `Content-Type` of the answer that has them.
pub const CONTENT_TYPE: &str = "text/perf-marker-stream";

/// One marker. `seconds` since 1970, `remote`: the other server.
pub fn marker(seconds: u64, bytes: u64, remote: Option<SocketAddr>) -> String {
    let mut out = format!(
        "Perf Marker\nTimestamp: {seconds}\nStripe Index: 0\nStripe Bytes Transferred: {bytes}\nTotal Stripe Count: 1\n"
    );
    if let Some(remote) = remote {
        let _ = writeln!(out, "RemoteConnections: tcp:{remote}");
    }
    out + "End\n"
}

/// The last line of a successful copy.
pub const SUCCESS: &str = "success: Created\n";

/// The last line of a failed copy. The text is put on one line: a second line would be taken for
/// something else.
pub fn failure(why: &str) -> String {
    let line: String = why.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("failure: {line}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_as_clients_parse_them() {
        let remote = "129.93.3.4:1234".parse().ok();
        assert_eq!(
            marker(1_537_788_010, 238_745, remote),
            "Perf Marker\nTimestamp: 1537788010\nStripe Index: 0\nStripe Bytes Transferred: 238745\n\
             Total Stripe Count: 1\nRemoteConnections: tcp:129.93.3.4:1234\nEnd\n"
        );
        assert!(
            marker(1, 2, "[2600::1]:2345".parse().ok()).contains("\nRemoteConnections: tcp:[2600::1]:2345\n")
        );
        assert!(!marker(1, 2, None).contains("Remote"));
    }

    #[test]
    fn a_failure_is_one_line() {
        assert_eq!(failure("a\nsuccess: b\r"), "failure: a success: b \n");
    }
}
