//! The bare responder on tokio: one thread, epoll; log writes on its pool of blocking threads.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use runtime_probe::{LOG_BYTES, LOG_PAUSE, LOG_WRITE_BYTES, LogTimes, RECEIVE_BYTES, Requests, arguments};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn main() -> io::Result<()> {
    let (address, log) = arguments()?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async move {
        let listener = TcpListener::bind(address).await?;
        if let Some(path) = log {
            tokio::spawn(write_log(path));
        }
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::spawn(serve(stream));
        }
    })
}

async fn serve(mut stream: TcpStream) -> io::Result<()> {
    let mut requests = Requests::default();
    let mut buffer = vec![0; RECEIVE_BYTES];
    loop {
        let length = stream.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        let answers = requests.answers(&buffer[..length]);
        if !answers.is_empty() {
            stream.write_all(answers).await?;
        }
    }
}

async fn write_log(path: PathBuf) -> io::Result<()> {
    let file = Arc::new(File::create(path)?);
    file.set_len(LOG_BYTES)?;
    let mut times = LogTimes::default();
    loop {
        let began = Instant::now();
        let (file, position) = (Arc::clone(&file), times.position());
        tokio::task::spawn_blocking(move || {
            file.write_all_at(&[1; LOG_WRITE_BYTES], position)?;
            file.sync_data()
        })
        .await??;
        times.note(began)?;
        tokio::time::sleep(LOG_PAUSE).await;
    }
}
