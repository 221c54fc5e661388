//! `lee snap send`, `receive` and `digest`: a snapshot as a stream.
//!
//! The process that serves the cell writes to a pipe of this one, or reads from it; a thread copies
//! between that and standard output or input.

use super::Invocation;
use crate::fail::{Fail, text};
use crate::output::{self, printable};
use crate::progress::Bar;
use crate::size;
use leeward_volume::admin::{self, Pipe, Streamed};
use std::fs::File;
use std::io::{self, IsTerminal, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;

/// As much as a pipe takes.
const PART_BYTES: usize = 64 << 10;

fn pipe() -> Result<(PipeReader, PipeWriter), Fail> {
    io::pipe().map_err(|e| Fail::new(format!("cannot make a pipe: {}", text(&e))))
}

/// `lee snap send`.
///
/// # Errors
/// What the cell says, or that standard output takes no more.
pub fn send(invocation: &Invocation, volume: String, name: String, from: Option<String>) -> Result<(), Fail> {
    if io::stdout().is_terminal() {
        return Err(Fail::usage("a stream is not for a terminal: use a pipe, or > FILE"));
    }
    let (mut reader, writer) = pipe()?;
    let copying = invocation.env.spawn("lee-stream", move || {
        // what is left in the pipe is thrown away with it, and the sender hears of it
        pass_on(&mut reader, &mut File::from(io::stdout().as_fd().try_clone_to_owned()?))
    });
    let request = admin::SnapSend { volume, name, from, part: None, pipe: Pipe::of(&writer) };
    let bar = Bar::new(invocation.format);
    let sent = invocation
        .session("snap send", |_, session| session.ask_with_progress(&request, &mut |p| bar.show(&p)));
    bar.clear();
    drop(writer);
    let copied = copying.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
    match copied {
        Err(e) => Err(Fail::new(format!("the stream cannot be written to standard output: {}", text(&e)))),
        Ok(()) => {
            let sent = sent?;
            // standard output has the stream
            output::reply_beside(invocation.format, &sent, || told(&sent, "sent"))
        }
    }
}

/// Copies until the reader ends. Not by [`io::copy`], which hands a pipe to `splice`: that looks
/// whether anybody reads before it looks whether there is anything left, and who has received all
/// of a stream may have ended.
fn pass_on(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut part = vec![0; PART_BYTES];
    loop {
        match from.read(&mut part) {
            Ok(0) => return Ok(()),
            Ok(len) => to.write_all(&part[..len])?,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => (),
            Err(e) => return Err(e),
        }
    }
}

/// `lee snap receive`.
///
/// # Errors
/// What the cell says, or that standard input cannot be read.
pub fn receive(invocation: &Invocation, volume: String) -> Result<(), Fail> {
    if io::stdin().is_terminal() {
        return Err(Fail::usage("a stream comes from lee snap send: use a pipe, or < FILE"));
    }
    let (reader, mut writer) = pipe()?;
    let (failed, failure) = std::sync::mpsc::channel();
    // not waited for: standard input may be silent when the cell has refused the stream
    invocation.env.spawn("lee-stream", move || {
        if let Err(e) = io::copy(&mut io::stdin().lock(), &mut writer) {
            let _ = failed.send(e);
        }
    });
    let sender = admin::Sender::default();
    let request = admin::SnapReceive { volume, pipe: Pipe::of(&reader), instead: false, sender };
    let bar = Bar::new(invocation.format);
    let received = invocation
        .session("snap receive", |_, session| session.ask_with_progress(&request, &mut |p| bar.show(&p)));
    bar.clear();
    let received = received.map_err(|fail| match failure.try_recv() {
        Ok(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Fail::new(format!("the stream cannot be read from standard input: {}", text(&e)))
        }
        _ => fail,
    })?;
    output::reply(invocation.format, &received, || told(&received, "received"))
}

fn told(done: &Streamed, what: &str) -> String {
    let header = &done.header;
    let name = |sent: &admin::Sent| printable(&String::from_utf8_lossy(sent.name.as_bytes()));
    let since =
        header.from.as_ref().map_or_else(|| "all of it".into(), |from| format!("since {}", name(from)));
    format!(
        "{what} snapshot {} of volume {}, {since}: {}; digest {}",
        name(&header.to),
        printable(&header.volume),
        size::bytes(done.bytes),
        done.digest
    )
}

/// `lee snap digest`.
///
/// # Errors
/// What the cell says.
pub fn digest(
    invocation: &Invocation,
    volume: String,
    name: String,
    from: Option<String>,
) -> Result<(), Fail> {
    let request = admin::SnapDigest { volume, name, from };
    let reply = invocation.ask_with_bar("snap digest", &request)?;
    output::reply(invocation.format, &reply, || reply.digest.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The server closes its end only when it has answered; by then the receiver may have all.
    #[test]
    fn who_has_all_of_a_stream_may_end_before_it_ends() {
        let ((mut from, mut server), (mut receiver, to)) =
            (io::pipe().expect("a pipe"), io::pipe().expect("a pipe"));
        let mut to = File::from(std::os::fd::OwnedFd::from(to));
        let copying = leeward_env::Env::real().spawn("copying", move || pass_on(&mut from, &mut to));
        server.write_all(b"all of it").expect("written");
        receiver.read_exact(&mut [0; 9]).expect("read");
        drop(receiver);
        drop(server);
        copying.join().expect("no panic").expect("nothing is missing");
    }

    #[test]
    fn who_has_not_all_is_missed() {
        let ((mut from, mut server), (receiver, to)) =
            (io::pipe().expect("a pipe"), io::pipe().expect("a pipe"));
        drop(receiver);
        server.write_all(b"more").expect("written");
        let passed = pass_on(&mut from, &mut File::from(std::os::fd::OwnedFd::from(to)));
        assert_eq!(passed.expect_err("nobody reads").kind(), io::ErrorKind::BrokenPipe);
    }
}
