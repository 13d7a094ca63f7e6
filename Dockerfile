# One image for every process of Outlast; docker-compose.yml says which one runs.
FROM python:3.11-slim-bookworm

ENV PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1

WORKDIR /app

# The packages first: they change less often than the code.
COPY requirements.lock ./
RUN pip install --require-hashes --no-deps -r requirements.lock

COPY pyproject.toml README.md LICENSE worker.py ./
COPY outlast outlast
COPY workflows workflows
COPY activities activities
COPY api api
RUN pip install --no-index --no-deps --no-build-isolation . \
    && useradd --create-home --uid 10001 outlast \
    && install --directory --owner outlast --group outlast --mode 0700 /data

USER outlast
ENV OUTLAST_DATA_DIR=/data
VOLUME /data
EXPOSE 8080

ENTRYPOINT ["outlast"]
CMD ["serve", "--host", "0.0.0.0"]
