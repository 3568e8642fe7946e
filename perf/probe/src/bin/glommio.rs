//! The bare responder on glommio: one executor, one thread; log writes with its direct I/O.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Instant;

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use glommio::io::DmaFile;
use glommio::net::{TcpListener, TcpStream};
use glommio::{GlommioError, LocalExecutorBuilder, Placement};
use runtime_probe::{LOG_BYTES, LOG_PAUSE, LOG_WRITE_BYTES, LogTimes, RECEIVE_BYTES, Requests, arguments};

fn main() -> io::Result<()> {
    let (address, log) = arguments()?;
    let executor = LocalExecutorBuilder::new(Placement::Unbound).make().map_err(plain)?;
    executor.run(async move { listen(address, log).await.map_err(plain) })
}

/// An error of glommio as one of the standard library.
fn plain(error: GlommioError<()>) -> io::Error {
    io::Error::other(error.to_string())
}

async fn listen(address: SocketAddr, log: Option<PathBuf>) -> Result<(), GlommioError<()>> {
    let listener = TcpListener::bind(address)?;
    if let Some(path) = log {
        glommio::spawn_local(write_log(path)).detach();
    }
    loop {
        let stream = listener.accept().await?;
        stream.set_nodelay(true)?;
        glommio::spawn_local(serve(stream)).detach();
    }
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

async fn write_log(path: PathBuf) -> Result<(), GlommioError<()>> {
    let file = DmaFile::create(path).await?;
    file.pre_allocate(LOG_BYTES, false).await?;
    let mut times = LogTimes::default();
    loop {
        let began = Instant::now();
        let mut page = file.alloc_dma_buffer(LOG_WRITE_BYTES);
        page.as_bytes_mut().fill(1);
        file.write_at(page, times.position()).await?;
        file.fdatasync().await?;
        times.note(began)?;
        glommio::timer::sleep(LOG_PAUSE).await;
    }
}
