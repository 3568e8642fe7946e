//! The bare responder on compio: one thread, multishot receive into the runtime's buffers, DEFER_TASKRUN.

use std::io;
use std::num::NonZero;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Instant;

use compio::BufResult;
use compio::driver::ProactorBuilder;
use compio::fs::File;
use compio::io::{AsyncReadMulti, AsyncWriteAtExt, AsyncWriteExt};
use compio::net::{TcpListener, TcpStream};
use compio::runtime::{Runtime, spawn};
use futures_lite::StreamExt;
use runtime_probe::{LOG_BYTES, LOG_PAUSE, LOG_WRITE_BYTES, LogTimes, RECEIVE_BYTES, Requests, arguments};

/// Receive buffers, as many as the bare ring has.
const BUFFER_COUNT: NonZero<u16> = NonZero::new(1024).unwrap();

fn main() -> io::Result<()> {
    let (address, log) = arguments()?;
    let mut proactor = ProactorBuilder::new();
    proactor.single_issuer(true).coop_taskrun(true).taskrun_flag(true).defer_taskrun(true);
    // With fewer buffers than busy connections a multishot receive ends with ENOBUFS.
    proactor.buffer_pool_size(BUFFER_COUNT).buffer_pool_buffer_len(RECEIVE_BYTES);
    let runtime = Runtime::builder().with_proactor(proactor).build()?;
    runtime.block_on(async move {
        let listener = TcpListener::bind(address).await?;
        if let Some(path) = log {
            spawn(write_log(path)).detach();
        }
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            spawn(serve(stream)).detach();
        }
    })
}

async fn serve(stream: TcpStream) -> io::Result<()> {
    let mut requests = Requests::default();
    let (mut reader, mut writer) = (&stream, &stream);
    let mut received = pin!(reader.read_multi(0));
    while let Some(bytes) = received.next().await {
        let bytes = bytes?;
        if bytes.is_empty() {
            break;
        }
        let answers = requests.answers(&bytes);
        drop(bytes);
        if !answers.is_empty() {
            let BufResult(result, _) = writer.write_all(answers).await;
            result?;
        }
    }
    Ok(())
}

async fn write_log(path: PathBuf) -> io::Result<()> {
    let mut file = File::create(path).await?;
    let BufResult(result, _) = file.write_all_at(vec![0; usize::try_from(LOG_BYTES).unwrap_or(0)], 0).await;
    result?;
    let mut times = LogTimes::default();
    let mut page = vec![1; LOG_WRITE_BYTES];
    loop {
        let began = Instant::now();
        let BufResult(result, back) = file.write_all_at(page, times.position()).await;
        result?;
        page = back;
        file.sync_data().await?;
        times.note(began)?;
        compio::time::sleep(LOG_PAUSE).await;
    }
}
