//! What other cells may ask of this one that send snapshots to copies here
//! (`lee host add NAME --mirror`): to make copies, to fill them, to give them quotas, to compare
//! them, to hand them over (`lee mirror switch`), to say that nothing more comes for them, and to
//! remove snapshots that a mirror has taken.
//! Nothing else, and nothing about volumes that are no copies.

use super::names::PREFIX;
use super::other::IS_PROMOTED;
use crate::control::server::{Service, failure};
use crate::system;
use leeward_env::{Ctx, Env};
use leeward_remote::{Asker, Given};
use leeward_volume::admin::{
    AnyReply, AnyRequest, CopyDetach, Failure, Pipe, Progress, Sender, SnapReceive, VolumeCreate, VolumeInfo,
    VolumeShow,
};
use std::io::{self, PipeWriter, Write};
use std::sync::Arc;

/// Longest piece of a stream, bytes.
const PIECE_BYTES_MAX: usize = 1 << 20;

/// A request of another cell.
pub struct Mirroring<'a> {
    /// For threads.
    pub env: &'a Env,
    /// The other cell, as a host of this one.
    pub asker: &'a Asker,
    /// Answers.
    pub service: &'a dyn Service,
}

impl Mirroring<'_> {
    /// Answers it.
    ///
    /// # Errors
    /// It may not be asked; or what this cell says.
    pub fn answer(
        &self,
        request: &AnyRequest,
        given: &Arc<Given>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<AnyReply, Failure> {
        use AnyRequest as A;
        match request {
            A::CopyCreate(copy) if self.may_make(&copy.volume) => (),
            A::CopyCreate(copy) => {
                let message = format!(
                    "the host {} may fill only the copies that it was given: lee volume create {} --copy makes one",
                    self.asker.host, copy.volume.name
                );
                return Err(failure(libc::EPERM, &message));
            }
            A::VolumeShow(show) => drop(self.copy(&show.name)?),
            A::VolumePromote(promote) if promote.handed_over.is_some() => drop(self.copy(&promote.name)?),
            A::CopyLimits(limits) => drop(self.copy(&limits.name)?),
            A::SnapDigest(digest) => drop(self.copy(&digest.volume)?),
            A::SnapList(list) if list.path.is_none() => {
                let volume = list.volume.as_deref().ok_or_else(|| self.refused())?;
                drop(self.copy(volume)?);
            }
            A::SnapRemove(remove) if remove.name.starts_with(PREFIX) => self.is_at_copy(&remove.path)?,
            A::CopyDetach(detach) => {
                self.copy(&detach.name)?;
                let request = CopyDetach { name: detach.name.clone(), from: Some(self.asker.host.clone()) };
                return self.service.admin(&Ctx::system(), &AnyRequest::from(request), progress);
            }
            A::SnapReceive(receive) => {
                self.copy(&receive.volume)?;
                return self.receive(receive, given, progress);
            }
            _ => return Err(self.refused()),
        }
        self.service.admin(&Ctx::system(), request, progress)
    }

    /// Copies are where the mirror looks for them, and nowhere else in the tree.
    fn may_make(&self, volume: &VolumeCreate) -> bool {
        let is_in_the_root = !volume.name.contains('/') && volume.at == format!("/{}", volume.name);
        self.asker.grant.volumes.is_empty() && is_in_the_root && volume.uid == 0 && volume.pool.is_none()
    }

    fn refused(&self) -> Failure {
        let message =
            format!("the host {} sends snapshots to copies, and may do nothing else", self.asker.host);
        failure(libc::EPERM, &message)
    }

    fn volume(&self, name: &str) -> Result<VolumeInfo, Failure> {
        let request = AnyRequest::from(VolumeShow { name: name.into() });
        match self.service.admin(&Ctx::system(), &request, &mut |_| ())? {
            AnyReply::VolumeShow(info) => Ok(*info),
            _ => Err(self.refused()),
        }
    }

    /// The copy of this name, if the host may fill it.
    fn copy(&self, name: &str) -> Result<VolumeInfo, Failure> {
        let grant = &self.asker.grant;
        let info = match self.volume(name) {
            // it does not hear which volumes there are
            Err(_) if !grant.volumes.is_empty() => return Err(self.refused()),
            info => info?,
        };
        if !grant.volumes.is_empty() && !grant.volumes.contains(&info.id) {
            return Err(self.refused());
        }
        match info.copy {
            Some(_) => Ok(info),
            None => Err(failure(IS_PROMOTED, &format!("volume {name} is a volume of its own, and no copy"))),
        }
    }

    fn is_at_copy(&self, path: &str) -> Result<(), Failure> {
        let request = AnyRequest::from(leeward_volume::admin::VolumeList);
        let AnyReply::VolumeList(all) = self.service.admin(&Ctx::system(), &request, &mut |_| ())? else {
            return Err(self.refused());
        };
        let found = all.volumes.into_iter().find(|volume| volume.at == path);
        found.ok_or_else(|| self.refused()).and_then(|volume| self.copy(&volume.name)).map(drop)
    }

    /// Hands what is given on to the cell, through a pipe.
    fn receive(
        &self,
        asked: &SnapReceive,
        given: &Arc<Given>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<AnyReply, Failure> {
        let no_pipe = |e: io::Error| failure(libc::EMFILE, &format!("cannot make a pipe: {e}"));
        let (reader, writer) = io::pipe().map_err(no_pipe)?;
        system::widen_pipe(&writer);
        let pipe = Pipe::of(&reader);
        let from = given.clone();
        let giving = self.env.try_spawn("mirror-receive", move || hand_on(&from, writer));
        let giving = giving.map_err(|_| failure(libc::EAGAIN, "there is no thread to spare: try again"))?;
        let sender = Sender { cell: self.asker.host.clone(), every_secs: asked.sender.every_secs };
        let request = SnapReceive { volume: asked.volume.clone(), pipe, instead: true, sender };
        let request = AnyRequest::from(request);
        let received = self.service.admin(&Ctx::system(), &request, progress);
        drop(reader);
        given.end();
        let _ = giving.join();
        received
    }
}

/// Ends when the cell reads no more, or nothing more is given.
fn hand_on(given: &Given, mut writer: PipeWriter) {
    while let Ok(Some(piece)) = given.next() {
        // who has sent nonsense gets an early end of the stream
        let Some(bytes) = unpacked(&piece) else { return };
        if writer.write_all(&bytes).is_err() {
            return;
        }
    }
}

fn unpacked(piece: &[u8]) -> Option<Vec<u8>> {
    let len = u32::from_le_bytes(*piece.first_chunk::<4>()?) as usize;
    if len > PIECE_BYTES_MAX { None } else { lz4_flex::decompress_size_prepended(piece).ok() }
}

#[cfg(test)]
mod tests {
    use super::unpacked;

    #[test]
    fn pieces_are_not_longer_than_they_may_be() {
        assert_eq!(unpacked(&lz4_flex::compress_prepend_size(b"abc")).as_deref(), Some(&b"abc"[..]));
        assert_eq!(unpacked(&lz4_flex::compress_prepend_size(&vec![0; 2 << 20])), None);
        for wrong in [&b""[..], b"abc", b"\xff\xff\xff\xff", b"\x05\0\0\0\xff\xff\xff"] {
            assert_eq!(unpacked(wrong), None);
        }
    }
}
