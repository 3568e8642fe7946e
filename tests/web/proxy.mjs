// A small TCP proxy that can cut every connection through it, so that a client's resume is a real one.

import net from 'node:net';

/** Starts a proxy to a port of this machine; `t` is the test, which ends it. */
export async function startProxy(t, targetPort) {
  const sockets = new Set();
  const clients = new Set();
  const heads = [];
  let isRefusing = false;
  let received = '';
  const server = net.createServer((client) => {
    if (isRefusing) {
      client.destroy();
      return;
    }
    const target = net.connect(targetPort, '127.0.0.1');
    for (const socket of [client, target]) {
      sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => {
        sockets.delete(socket);
        client.destroy();
        target.destroy();
      });
    }
    clients.add(client);
    client.on('close', () => clients.delete(client));
    target.on('data', (bytes) => (received = (received + bytes.toString('latin1')).slice(-4096)));
    client.once('data', (bytes) => heads.push(bytes.toString('latin1')));
    client.pipe(target);
    target.pipe(client);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const cut = () => {
    // A reset, not an orderly end: what a lost network looks like.
    for (const socket of sockets) socket.resetAndDestroy();
  };
  t.after(() => {
    cut();
    return new Promise((resolve) => server.close(resolve));
  });
  return {
    port: server.address().port,
    cut,
    /** Ends every connection in order, so that a client reads all that was sent before it sees the end. */
    end: () => {
      for (const client of clients) client.end();
    },
    /** The last bytes that went to clients. */
    received: () => received,
    /** Whether new connections are cut at once. */
    refuse: (value) => (isRefusing = value),
    /** The first bytes of every connection so far: the heads of the requests. */
    heads,
  };
}
