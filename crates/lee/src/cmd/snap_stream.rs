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
use std::io::{self, IsTerminal, PipeReader, PipeWriter, Write};

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
        let mut out = io::stdout().lock();
        // what is left in the pipe is thrown away with it, and the sender hears of it
        io::copy(&mut reader, &mut out).and_then(|_| out.flush())
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
    let request = admin::SnapReceive { volume, pipe: Pipe::of(&reader), instead: false };
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
