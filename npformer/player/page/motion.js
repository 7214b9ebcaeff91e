// Motion: a group of animations that plays, pauses, stops at its moments and ends. It changes transforms and
// opacity only, and the page below it always shows the end. So a motion can be cancelled at any time.

import { show } from "./state.js";

/** @typedef {{ element: HTMLElement, frames: Keyframe[] }} Track */
/** @typedef {{ left: number, top: number, width: number, height: number }} Rect */

const calm = matchMedia("(prefers-reduced-motion: reduce)");
export const isMoving = () => show.motion && !calm.matches;

const playing = {
  animations: /** @type {Animation[]} */ ([]),
  moments: /** @type {number[]} */ ([]), // in milliseconds: where the step key stops
  stop: Infinity, // the moment at which the motion pauses
  end: () => {},
};
export const isPlaying = () => playing.animations.length > 0;

/** @param {Track[]} tracks @param {number} duration @param {number[]} moments */
export function playMotion(tracks, duration, moments, end) {
  endMotion();
  const options = { duration, fill: /** @type {FillMode} */ ("both") };
  const animations = tracks.map(({ element, frames }) => element.animate(frames, options));
  Object.assign(playing, { animations, moments, stop: Infinity, end });
  if (animations.length) animations[0].onfinish = endMotion;
  else end();
}

export function endMotion() {
  const { animations, end } = playing;
  Object.assign(playing, { animations: [], moments: [], stop: Infinity, end: () => {} });
  for (const animation of animations) animation.cancel();
  end();
}

export const isPaused = () => playing.animations[0]?.playState === "paused";

export function setPaused(pauses) {
  playing.stop = Infinity;
  for (const animation of playing.animations) {
    if (pauses) animation.pause();
    else animation.play();
  }
}

// Play to the next moment and pause there; after the last moment, play to the end.
export function stepMotion() {
  const now = Number(playing.animations[0]?.currentTime ?? 0);
  playing.stop = playing.moments.find(moment => moment > now + 1) ?? Infinity;
  for (const animation of playing.animations) animation.play();
  requestAnimationFrame(watch);
}

function watch() {
  const { animations, stop } = playing;
  if (stop === Infinity || !isPlaying()) return;
  if (Number(animations[0].currentTime) < stop) return void requestAnimationFrame(watch);
  for (const animation of animations) {
    animation.pause();
    animation.currentTime = stop;
  }
  playing.stop = Infinity;
}

// The camera

const FLIGHT = 650, FRAMES = 24; // milliseconds, and keyframes of one flight

/**
 * Fly with one camera over two layers. The camera moves so that the rectangle `from` of the leaving layer
 * becomes the rectangle `to` of the entering layer; at every time, both rectangles are at the same place.
 * @param {HTMLElement[]} leaving @param {HTMLElement[]} entering @param {Rect} from @param {Rect} to
 */
export function fly(leaving, entering, from, to, end) {
  const times = Array.from({ length: FRAMES + 1 }, (_, k) => k / FRAMES);
  const tracks = (elements, rect, opacityAt) => elements.map(element => {
    const own = element.getBoundingClientRect();
    const frames = times.map(time => {
      const transform = cameraMatrix(own, rect, rectBetween(from, to, eased(time)));
      return { transform, transformOrigin: "0 0", opacity: opacityAt(time) };
    });
    return { element, frames };
  });
  const clamp = value => Math.min(Math.max(value, 0), 1);
  const out = tracks(leaving, from, time => clamp((0.85 - time) / 0.5));
  const into = tracks(entering, to, time => clamp((time - 0.1) / 0.5));
  playMotion([...out, ...into], FLIGHT, [FLIGHT / 2], end);
}

const eased = time => time * time * (3 - 2 * time);

// Return the rectangle between two rectangles: the size grows by the same factor in equal times.
function rectBetween(a, b, time) {
  const [left, width] = spanBetween(a.left, a.width, b.left, b.width, time);
  const [top, height] = spanBetween(a.top, a.height, b.top, b.height, time);
  return { left, top, width, height };
}

// The map from the first span to the second has a fixed point, towards which the camera zooms.
function spanBetween(start, length, end, last, time) {
  const factor = last / length, scale = factor ** time;
  const share = Math.abs(factor - 1) < 1e-3 ? time : (scale - 1) / (factor - 1);
  return [start * scale + (end - start * factor) * share, length * scale];
}

// Return the transform of an element at `own` that takes its rectangle `rect` to the rectangle `seen`.
function cameraMatrix(own, rect, seen) {
  const x = seen.width / rect.width, y = seen.height / rect.height;
  const right = seen.left + x * (own.left - rect.left) - own.left;
  const down = seen.top + y * (own.top - rect.top) - own.top;
  return `matrix(${x}, 0, 0, ${y}, ${right}, ${down})`;
}
