// The real Chromium of the machine, without a window, for tests of pages.

import { chromium } from 'playwright-core';

/** Starts it; whoever did closes it. RINGMAIN_CHROMIUM names another program than the system's. */
export function startBrowser() {
  return chromium.launch({
    executablePath: process.env.RINGMAIN_CHROMIUM ?? '/usr/bin/chromium',
    chromiumSandbox: false,
    args: [
      '--headless',
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
      '--disable-dev-shm-usage',
    ],
  });
}
