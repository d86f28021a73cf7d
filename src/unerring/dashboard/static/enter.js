// The address that `unerring dashboard --open` opens has a code behind its #, which no browser sends and which counts once.
const code = /[#&]code=([\w-]+)/.exec(location.hash)?.[1];
if (code) {
  history.replaceState(null, '', '/login');
  const answer = await fetch('/login', { method: 'POST', body: new URLSearchParams({ code }) });
  if (answer.ok) {
    location.replace('/');
  } else {
    const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
    document.querySelector('[role=alert]').textContent = page.querySelector('[role=alert]')?.textContent || 'Log in with the token.';
  }
}
// Who was sent the address of a question gets its answer.
document.querySelector('form').action += location.hash;
