"""Short jobs by the thousand on one denoiser: what they are to do, who runs them, and what they are compared with."""
