// What people do with Browserbase's JavaScript package, Playwright, Puppeteer and Selenium. Run where these are installed.
import assert from 'node:assert';
import { createRequire } from 'node:module';
import path from 'node:path';

const load = createRequire(path.join(process.cwd(), 'package.json'));
const { Browserbase } = load('@browserbasehq/sdk');
const bb = new Browserbase({ apiKey: process.env.BROWSERBASE_API_KEY, baseURL: process.env.BROWSERBASE_BASE_URL });
const PAGE = 'data:text/html,<title>Shop</title><input id=who><button onclick="said.textContent=%60Hello ${who.value}%60">Greet</button><p id=said></p>';

async function ended(id) {
  for (let i = 0; i < 600; i++) {
    const found = await bb.sessions.retrieve(id);
    if (found.status === 'COMPLETED') return found;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error('the session did not end');
}

const scenarios = {
  async playwright() {
    const { chromium } = load('playwright-core');
    const session = await bb.sessions.create({ userMetadata: { by: 'js' } });
    assert.equal(session.status, 'RUNNING');
    const browser = await chromium.connectOverCDP(session.connectUrl);
    const page = browser.contexts()[0].pages()[0];
    await page.goto(PAGE);
    await page.fill('#who', 'Ada');
    await page.click('button');
    assert.equal(await page.textContent('#said'), 'Hello Ada');
    const live = await bb.sessions.debug(session.id);
    assert.equal(live.pages.length, 1);
    await browser.close();
    await ended(session.id);
    const logs = await bb.sessions.logs.list(session.id);
    assert.ok(logs.some((entry) => entry.method === 'Page.navigate'));
  },
  async puppeteer() {
    const puppeteer = load('puppeteer-core');
    const session = await bb.sessions.create({ keepAlive: true });
    const browser = await puppeteer.connect({ browserWSEndpoint: session.connectUrl });
    const page = (await browser.pages())[0];
    await page.goto(PAGE);
    await page.type('#who', 'Grace');
    await page.click('button');
    assert.equal(await page.$eval('#said', (found) => found.textContent), 'Hello Grace');
    await browser.close(); // says Browser.close, which must not end a session that is kept
    const again = await puppeteer.connect({ browserWSEndpoint: session.connectUrl });
    assert.equal(await (await again.pages())[0].title(), 'Shop');
    await again.disconnect();
    assert.equal((await bb.sessions.update(session.id, { status: 'REQUEST_RELEASE' })).status, 'COMPLETED');
  },
  async selenium() {
    const { Builder, By } = load('selenium-webdriver');
    const session = await bb.sessions.create();
    const driver = await new Builder().forBrowser('chrome').usingServer(session.seleniumRemoteUrl).build();
    await driver.get(PAGE);
    await driver.findElement(By.id('who')).sendKeys('Alan');
    await driver.findElement(By.css('button')).click();
    assert.equal(await driver.findElement(By.id('said')).getText(), 'Hello Alan');
    await driver.quit();
    await ended(session.id);
  },
};

await scenarios[process.argv[2]]();
console.log('well');
