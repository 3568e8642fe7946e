//! A request whose body is on its way, and what is held of it. On the core of the connection.

use ringmain_model::Refusal;
use ringmain_model::limit::BODIES_BYTES_PER_CORE;
use ringmain_wire::http::BodyDecoder;

use super::HttpFront;
use super::exchange::Task;
use super::problem::Problem;
use super::respond::Context;

/// Bytes that a body must grow by within the body timeout.
pub(super) const BODY_PROGRESS_BYTES: usize = 4 << 10;
/// Room made for a body at first, whatever its announced length, and kept for it.
const UPLOAD_BYTES_FIRST: usize = 64 << 10;

/// A request whose body is on its way.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) context: Context,
    pub(super) task: Task,
    decoder: BodyDecoder,
    /// What has come of the body and not been let go.
    pub(super) body: Vec<u8>,
    /// 100 Continue is owed, once earlier requests are answered.
    pub(super) owes_continue: bool,
    /// Bytes that had come when progress was last looked at.
    progress: u64,
    /// Bytes counted among those of the core's bodies.
    counted: usize,
}

impl Upload {
    pub(super) fn begin(context: Context, task: Task, decoder: BodyDecoder, owes_continue: bool) -> Self {
        let announced = usize::try_from(decoder.remaining_hint().unwrap_or(0)).unwrap_or(usize::MAX);
        let body = Vec::with_capacity(announced.min(UPLOAD_BYTES_FIRST));
        Self { context, task, decoder, body, owes_continue, progress: 0, counted: 0 }
    }

    /// Takes what came; says how many bytes were used and whether the body is whole. The end of a whole body is left to be
    /// read; what came before has been read, where that can be done, and let go.
    pub(super) fn take(&mut self, front: &mut HttpFront, bytes: &[u8]) -> Result<(usize, bool), Problem> {
        let (used, is_whole) = self.decoder.decode(bytes, &mut self.body)?;
        if is_whole {
            return Ok((used, true));
        }
        let mut held = 0;
        match &mut self.task {
            // Nobody wants it.
            Task::Refuse(_) => self.body.clear(),
            Task::Publish(publish) => {
                let done = publish.take(&self.body)?;
                if done > 0 {
                    self.body.drain(..done);
                    self.body.shrink_to(UPLOAD_BYTES_FIRST);
                }
                held = publish.held_bytes();
            }
            _ => {}
        }
        held += self.body.len();
        front.uploads_bytes = front.uploads_bytes + held - self.counted;
        self.counted = held;
        if front.uploads_bytes > BODIES_BYTES_PER_CORE {
            return Err(Refusal::busy("this core holds as many half received bodies as it may").into());
        }
        Ok((used, false))
    }

    /// Whether enough has come since this was last asked.
    pub(super) fn has_progressed(&mut self) -> bool {
        let taken = self.decoder.taken();
        let enough = taken >= self.progress + BODY_PROGRESS_BYTES as u64;
        if enough {
            self.progress = taken;
        }
        enough
    }

    /// Counts it no more among the core's.
    pub(super) fn give_back(&self, front: &mut HttpFront) {
        front.uploads_bytes -= self.counted;
    }
}
